"""Milliseconds of a training step on a GPU: one process alone, and several on one card.

    python -m benchmarks.gpu_steps [--processes 4,8] [--json FILE]

Networks, shapes and batches are those of PUF's and HF-KCU's trainings, the rows random: a
step's time does not depend on them. Small networks keep a GPU waiting for the next launch, so
their time says nothing of the card's arithmetic; several processes share it better.
`docs/benchmarks/unlearning.md` reckons the papers' sizes with what is written here.
"""

import json
import multiprocessing
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks.unlearning.machines import measured_on
from workers.errors import RefusedError
from workers.training.fedavg.base import ClientData, RoundTask
from workers.training.fedavg.client.flops import training_flops
from workers.training.fedavg.client.respond import respond
from workers.training.fedavg.config import LocalConfig
from workers.training.fedavg.determinism import deterministic
from workers.training.fedavg.device import choose
from workers.training.networks.registry import network
from workers.training.networks.weights import initial_weights

WAIT = 600.0  # seconds for the processes of one measurement
COLOUR = {"channels": 3, "height": 32, "width": 32, "classes": 10}
GREY = {"channels": 1, "height": 28, "width": 28, "classes": 10}


@dataclass(frozen=True, slots=True)
class Steps:
    """A network as a paper trains it, and how many steps are timed."""

    network: str
    shape: Mapping[str, int]
    batch: int
    steps: int


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The mean time of a step in each of so many processes, and operations by all a second."""

    network: str
    channels: int
    batch: int
    processes: int
    milliseconds: float
    operations: float


LISTED = (
    Steps("simple-cnn", GREY, 64, 500),
    Steps("simple-cnn", COLOUR, 64, 500),
    Steps("resnet18", COLOUR, 64, 80),
    Steps("resnet18", COLOUR, 32, 80),
    Steps("vit-lite", COLOUR, 64, 80),
)
SHARED = LISTED[1]  # timed in several processes at once


def seconds(size: Steps, device: torch.device) -> float:
    """Return the time of all steps, after a warm-up of four."""
    named = network(size.network, dict(size.shape))
    weights = initial_weights(named, 0)
    config = LocalConfig(epochs=1.0, batch_size=size.batch, learning_rate=0.01, momentum=0.0)
    task = RoundTask(named, 1, "steps", weights, "", config, 1)
    rows, classes = size.batch * size.steps, size.shape["classes"]
    data = ClientData(torch.randn(rows, *named.input_shape), torch.arange(rows) % classes)
    with deterministic(1):
        respond(task, data.only(torch.arange(min(4, size.steps) * size.batch)), device)
        started = time.perf_counter()
        respond(task, data, device)  # ends with the weights on the CPU, so all is done
        return time.perf_counter() - started


def at_once(size: Steps, processes: int, device: torch.device) -> StepTimes:
    """Return the mean of so many processes that begin together.

    Raises queue.Empty if one of them does not answer.
    """
    if processes == 1:
        found = [seconds(size, device)]
    else:
        context = multiprocessing.get_context("spawn")
        barrier, answers = context.Barrier(processes), context.Queue()
        started = [
            context.Process(target=_child, args=(size, str(device), barrier, answers))
            for _ in range(processes)
        ]
        for one in started:
            one.start()
        found = [answers.get(timeout=WAIT) for _ in started]
        for one in started:
            one.join()
    mean = sum(found) / len(found)
    named = network(size.network, dict(size.shape))
    operations = training_flops(named) * size.batch * size.steps * processes / mean
    return StepTimes(
        size.network,
        size.shape["channels"],
        size.batch,
        processes,
        round(1000 * mean / size.steps, 4),
        float(f"{operations:.4g}"),
    )


def _child(size: Steps, device: str, barrier: "Barrier", answers: "Queue[float]") -> None:
    torch.set_num_threads(1)
    place = torch.device(device)
    seconds(Steps(size.network, size.shape, size.batch, 4), place)  # the driver's context
    barrier.wait(WAIT)
    answers.put(seconds(size, place))


@click.command()
@click.option("--device", "kind", type=click.Choice(("cuda", "cpu")), default="cuda")
@click.option("--processes", default="4,8", show_default=True, help="Also so many at once.")
@click.option("--short", is_flag=True, help="A few steps: for a look, not for the record.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write the record here.")
def main(kind: str, processes: str, short: bool, file: Path | None) -> None:
    """Time training steps of the papers' networks on a device."""
    torch.set_num_threads(1)
    try:
        device = choose(kind)
    except RefusedError as error:
        raise click.ClickException(str(error)) from None
    record: dict[str, Any] = {"machine": measured_on(kind), "steps": []}
    wanted = [(size, 1) for size in LISTED]
    wanted += [(SHARED, int(number)) for number in processes.split(",") if number]
    for size, number in wanted:
        timed = Steps(size.network, size.shape, size.batch, 2) if short else size
        found = at_once(timed, number, device)
        record["steps"].append(asdict(found))
        click.echo(
            f"{found.network:11} {found.channels} channels, batch {found.batch}, "
            f"{number:2} at once: {found.milliseconds:8.3f} ms a step, "
            f"{found.operations:.2e} operations/s"
        )
        if file is not None:
            file.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
