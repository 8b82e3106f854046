"""Width: what ACU costs in time and memory on random features of up to 10,000 columns.

    python -m benchmarks.acu_wide

Each step is made twice: the recursion alone in float64, and the whole method, which keeps
exact integer statistics beside it and proves the head. Memory is what the process held at
most during the step, in sizes of one d x d matrix of 8 bytes; a state has two of them, K
and G, and a step has the state before and the one after. Linux only.
"""

import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import click
import numpy as np

from workers.arrays import Rows
from workers.data.extractors.random_relu import RandomRelu
from workers.methods.ridge.acu import METHOD, recur
from workers.methods.ridge.base import Outcome, RidgeConfig
from workers.methods.ridge.statistics.quantiser import calibrate
from workers.methods.ridge.tracked_inverse import empty_inverse
from workers.methods.ridge.upkeep import Tracked

INPUTS, CLASSES, ROWS, PENALTY, SEED = 64, 10, 1000, 100.0, 0
WIDTHS = (1000, 2000, 5000, 10000)
DELETIONS = (1, 100)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """One measured step: seconds, and the most memory held, in multiples of G."""

    width: int
    name: str
    seconds: float
    grams: float
    note: str


def make_problem(width: int) -> tuple[Rows, RidgeConfig]:
    """Return rows of random features of `width` columns, and their configuration."""
    rng = np.random.default_rng(SEED)
    inputs = rng.normal(size=(ROWS, INPUTS))
    features = RandomRelu(INPUTS, width, SEED).extract(inputs)
    quantiser = calibrate(features[:100])
    codes, _ = quantiser.quantise(features)
    labels = np.argmax(inputs[:, :CLASSES], axis=1).astype(np.int64)
    config = RidgeConfig(width, CLASSES, quantiser.exponents, quantiser.bits, PENALTY)
    return Rows(codes, labels), config


@dataclass(slots=True)
class Meter:
    """Measures steps at one width; memory above what the process held when this was made."""

    width: int
    idle: int = field(default_factory=lambda: peak(anew=True))
    steps: list[Step] = field(default_factory=list)

    def run(self, name: str, work: Callable[[], T], note: Callable[[T], str]) -> T:
        """Return the result of `work`, measured."""
        peak(anew=True)
        started = time.perf_counter()
        result = work()
        seconds = time.perf_counter() - started
        grams = (peak() - self.idle) / (8 * self.width**2)
        self.steps.append(Step(self.width, name, seconds, grams, note(result)))
        return result


def measure(width: int) -> list[Step]:
    """Return the steps at one width: learn, then forget 1 and 100 rows, twice."""
    rows, config = make_problem(width)
    few = {k: Rows(rows.codes[:k], rows.labels[:k]) for k in DELETIONS}
    meter = Meter(width)

    def alone() -> Tracked:
        nothing = np.zeros((config.dimension, config.classes))
        return recur(config, Tracked(empty_inverse(config), nothing), [rows], +1)

    tracked = meter.run(f"learn {ROWS}", alone, lambda _: "float64 alone")
    for k, gone in few.items():
        again = partial(recur, config, tracked, [gone], -1)
        meter.run(f"forget {k}", again, lambda _: "float64 alone")
    del tracked, again
    learned = meter.run(f"learn {ROWS}", lambda: METHOD.learn(config, None, rows), _told).state
    for k, gone in few.items():
        meter.run(f"forget {k}", partial(METHOD.forget, config, learned, gone), _told)
    return meter.steps


def _told(outcome: Outcome) -> str:
    state = outcome.state
    relative = state.bound / float(np.linalg.norm(state.head))
    return f"reset {outcome.notes['reset']}, proven to {relative:.0e}"


def peak(anew: bool = False) -> int:
    """Return the most bytes that were resident since the last call with `anew` (proc(5))."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    raise OSError("this kernel does not tell a peak of resident memory")


@click.command()
@click.option("--widths", default=",".join(map(str, WIDTHS)), help="Columns, with commas.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write results here.")
def main(widths: str, file: Path | None) -> None:
    """Measure learning and forgetting by ACU at growing widths."""
    click.echo(f"{ROWS} rows, {CLASSES} classes, {os.cpu_count()} cores; memory in sizes of G")
    click.echo(f"{'width':>6} {'step':12} {'seconds':>9} {'memory':>7}")
    steps: list[Step] = []
    # A process each: memory that one width has freed is not all given back.
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for measured in pool.imap(measure, map(int, widths.split(","))):
            for step in measured:
                click.echo(
                    f"{step.width:6} {step.name:12} {step.seconds:9.3f} {step.grams:7.2f}"
                    f"   {step.note}"
                )
            steps += measured
    if file is not None:
        report = {
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "steps": [asdict(step) for step in steps],
        }
        file.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
