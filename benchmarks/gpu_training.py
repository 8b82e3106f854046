"""Training, HF-KCU and PUF on a device: self-tests, equal bits, and time beside the CPU.

    python -m benchmarks.gpu_training [--device cuda|cpu] [--rounds N] [--json FILE]

A small convolutional network on scikit-learn's digits, dealt over ten clients. Each piece of
work is done twice: a verdict that repeats a training on the device rests on equal bits. From
the CPU's result a device's may differ by float32's rounding, so accuracies are compared.
`--device cpu` rehearses the same steps where there is no GPU.
"""

import json
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks.common import timed
from workers.data.digits import load_digit_images
from workers.data.images import LabelledImages
from workers.demo.forgetting import Federated, federate
from workers.devices import open_device
from workers.errors import RefusedError
from workers.methods.network.base import UnlearningRequest
from workers.methods.network.local_case import local_case
from workers.methods.network.registry import make
from workers.methods.network.validation import held_out
from workers.methods.ridge.statistics.backend import BackendError
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.fedavg.determinism import environment
from workers.training.fedavg.device import check, choose
from workers.training.fedavg.evaluate import evaluate
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes, train
from workers.training.networks.weights import Weights, digest_of, encode_weights

METHODS = ("retrain", "hf-kcu", "puf-special")
POINTS = 0.05  # of accuracy, between a device's model and the processor's: 18 of 360 images


def trained(federated: Federated, device: torch.device) -> Weights:
    """Return the weights of a training there."""
    engine = InProcess(federated.clients, device, threads=1)
    done = train(federated.network, sizes(federated.clients), federated.config, engine)
    return done.weights


def unlearned(
    federated: Federated, weights: Weights, method: str, device: torch.device
) -> Weights:
    """Return the weights after a method has removed the largest client there."""
    case = local_case(
        federated.network,
        weights,
        UnlearningRequest(frozenset({federated.target})),
        federated.config,
        federated.clients,
        device=device,
        threads=1,
        validation=held_out(federated.network, federated.validation, device, threads=1),
    )
    return make(method).run(case).weights


def measure(images: LabelledImages, rounds: int, device: torch.device) -> dict[str, Any]:
    """Return one line for each piece of work: equal bits, accuracies, seconds."""
    local = LocalConfig(epochs=1, batch_size=16, learning_rate=0.05, momentum=0.9)
    federated = federate(images, TrainingConfig(rounds=rounds, seed=0, local=local))
    cpu = torch.device("cpu")
    start = trained(federated, cpu)
    work: dict[str, Callable[[torch.device], Weights]] = {
        "training": partial(trained, federated)
    }
    for method in METHODS:
        work[method] = partial(unlearned, federated, start, method)
    lines = {}
    for name, run in work.items():
        first, seconds = timed(partial(run, device))
        again = run(device)
        here, seconds_here = timed(partial(run, cpu))
        accuracies = [
            evaluate(federated.network, each, federated.test).accuracy for each in (first, here)
        ]
        lines[name] = {
            "equal_bits": _digest(federated, first) == _digest(federated, again),
            "equal_to_cpu": _digest(federated, first) == _digest(federated, here),
            "accuracy": accuracies[0],
            "accuracy_cpu": accuracies[1],
            "seconds": seconds,
            "cpu_over_device": round(seconds_here / seconds, 3),
        }
    return lines


def problems(lines: dict[str, Any]) -> list[str]:
    """Return what a device did that no verdict may rest on."""
    found = [
        f"{name}: other bits each time"
        for name, line in lines.items()
        if not line["equal_bits"]
    ]
    found += [
        f"{name}: accuracy {line['accuracy']:.3f}, on the processor {line['accuracy_cpu']:.3f}"
        for name, line in lines.items()
        if abs(line["accuracy"] - line["accuracy_cpu"]) > POINTS
    ]
    return found


def _digest(federated: Federated, weights: Weights) -> str:
    network = federated.network
    return digest_of(encode_weights(network.id, network.parameters, weights))


@click.command()
@click.option("--device", "kind", type=click.Choice(("cuda", "cpu")), default="cuda")
@click.option("--rounds", default=6, show_default=True, type=click.IntRange(1))
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write the record here.")
def main(kind: str, rounds: int, file: Path | None) -> None:
    """Compare a device with itself and with the processor; exit with 1 where it is unfit."""
    try:
        device = choose(kind)
        check(device)
        sums = open_device("cuda" if kind == "cuda" else "cpu")
    except (RefusedError, BackendError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"self-tests of sums and of training passed on {environment(device)['device']}")
    lines = measure(load_digit_images(), rounds, device)
    for name, line in lines.items():
        click.echo(
            f"{name:12} equal bits {line['equal_bits']!s:5}  accuracy {line['accuracy']:.3f} "
            f"(processor {line['accuracy_cpu']:.3f})  {line['seconds']:.1f} s, "
            f"{line['cpu_over_device']:.2f} times as fast as the processor"
        )
    found = problems(lines)
    record = {
        "environment": {
            **environment(device),
            **sums.environment,
            "python": platform.python_version(),
        },
        "rounds": rounds,
        "lines": lines,
        "problems": found,
    }
    if file is not None:
        file.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
    if found:
        raise click.ClickException("; ".join(found))


if __name__ == "__main__":
    main()
