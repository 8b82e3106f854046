"""PUF beside retraining on one machine: fixed and guarded steps, over seeds.

    python -m benchmarks.puf_first [--data images.npz --rows 3000] [--seeds 5]

Each line is the mean over seeds. gap: |forget accuracy - the retrained model's|, closed: how
much of the original model's gap is gone (1: all), test: accuracy minus the retrained
model's, worst: the least of these over seeds, all in points but `closed`.
"""

from collections.abc import Mapping
from math import isnan
from pathlib import Path
from statistics import mean
from typing import Any

import click

from workers.datasets.digit_images import load_digit_images
from workers.datasets.image_npz import load_image_npz
from workers.demo.federated import Teller
from workers.demo.forgetting import Measured, federate, learn, measure, unlearn
from workers.fedavg.config import LocalConfig, TrainingConfig
from workers.unlearning.base import Hooks
from workers.unlearning.registry import make

Settings = Mapping[str, Any]
RISES = (0.5, 1.0, 1.5, 2.0)


def contenders(rounds: int) -> dict[str, tuple[str, Settings]]:
    """Return the methods by label, each with so many rounds of recovery of one epoch."""
    after: Settings = {"recovery": {"rounds": rounds, "epochs": 1.0}}
    found: dict[str, tuple[str, Settings]] = {f"natural, {rounds}": ("natural", after)}
    for mode, rates in (("special", (1.0, 2.0)), ("regular", (10.0, 20.0))):
        for rate in rates:
            fixed = {"guard": None, "unlearning_rate": rate, **after}
            found[f"{mode} fixed {rate:g}, {rounds}"] = (f"puf-{mode}", fixed)
        for rise in RISES:
            guarded = {"guard": {"rise": rise}, **after}
            found[f"{mode} rise {rise:g}, {rounds}"] = (f"puf-{mode}", guarded)
    return found


@click.command()
@click.option("--data", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--rows", type=int, help="Train on so many at most.")
@click.option("--seeds", default=5, show_default=True)
@click.option("--rounds", default=20, show_default=True)
@click.option("--epochs", default=2.0, show_default=True)
@click.option("--rate", default=0.05, show_default=True)
@click.option("--alpha", default=0.1, show_default=True)
@click.option("--recovery", multiple=True, default=(1, 3), show_default=True, type=int)
def main(
    data: Path | None,
    rows: int | None,
    seeds: int,
    rounds: int,
    epochs: float,
    rate: float,
    alpha: float,
    recovery: tuple[int, ...],
) -> None:
    """Measure PUF with fixed and guarded steps against retraining."""
    images = load_digit_images() if data is None else load_image_npz(data)
    local = LocalConfig(epochs=epochs, learning_rate=rate, momentum=0.9)
    seen: dict[str, list[tuple[Measured, Measured, Measured]]] = {}
    for seed in range(seeds):
        teller = Teller()
        config = TrainingConfig(rounds=rounds, seed=seed, local=local)
        federated = federate(images, config, seed=seed, alpha=alpha, rows=rows)
        case, work = learn(federated, teller.begin(f"seed {seed}, original"))
        original = measure(federated, "original", case.weights, work)
        again = make("retrain").run(case, Hooks(tell=teller.begin(f"seed {seed}, retrain")))
        retrained = measure(federated, "retrain", again.weights, again.work)
        click.echo(
            f"seed {seed}: test {original.test:.3f}, retrained {retrained.test:.3f}; forget "
            f"{original.forget:.3f}, retrained {retrained.forget:.3f}"
        )
        teller.begin(f"seed {seed}, methods")
        for budget in recovery:
            for label, (method, settings) in contenders(budget).items():
                found = unlearn(federated, case, method, settings, label=label)
                seen.setdefault(label, []).append((found, original, retrained))
        teller.end()
    click.echo(f"{'':24}   gap closed   test  worst  compute  η_u")
    for label, runs in seen.items():
        _tell(label, runs)


def _tell(label: str, runs: list[tuple[Measured, Measured, Measured]]) -> None:
    runs = [run for run in runs if not isnan(run[0].test)]
    if not runs:
        click.echo(f"{label:24} refused in every seed")
        return
    gaps = [abs(found.forget - retrained.forget) for found, _, retrained in runs]
    first = [abs(original.forget - retrained.forget) for _, original, retrained in runs]
    tests = [found.test - retrained.test for found, _, retrained in runs]
    cost = mean(
        retrained.work.flops / found.work.flops
        for found, _, retrained in runs
        if found.work is not None and retrained.work is not None
    )
    steps = " ".join(found.note.split(" ")[1] for found, _, _ in runs if found.note)
    click.echo(
        f"{label:24} {100 * mean(gaps):5.1f} {1 - sum(gaps) / sum(first):6.2f} "
        f"{100 * mean(tests):6.1f} {100 * min(tests):6.1f}  1/{cost:5.1f}  {steps}"
    )


if __name__ == "__main__":
    main()
