"""What one deletion costs by Variant B and ACU, as ratios measured in one run.

    python -m benchmarks.ridge_updates [--quick] [--json FILE]

Every round measures each contender in turn, so that a busy machine slows all of them, and
the short ones several times; ratios are of medians over all calls. Each deletion is the
next record of one stream. The full size is n 50,000, d 768, c 100 and needs about 2 GB.
"""

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median

import click
import numpy as np

from benchmarks.common import Line, Problem, ProblemSize, make_problem, seconds, tell
from workers.arrays import Rows
from workers.methods.ridge import (
    acu,
    ridge_exact,
    ridge_woodbury,
)
from workers.methods.ridge.acu import recur
from workers.methods.ridge.base import Method, RidgeConfig, RidgeState
from workers.methods.ridge.ridge_woodbury import woodbury
from workers.methods.ridge.statistics.gram import subtract
from workers.methods.ridge.upkeep import Tracked

CALLS = 10  # of what takes milliseconds, for one refit
FULL, QUICK = ProblemSize(50_000, 768, 100, 5), ProblemSize(5_000, 256, 20, 3)
REFIT = "scikit-learn refit"


class DeletionStream:
    """Deletions of one record after another from the same rows, by one method."""

    def __init__(self, method: Method, config: RidgeConfig, rows: Rows) -> None:
        self._method, self._config, self._rows = method, config, rows
        self.state: RidgeState = method.refit(config, [rows]).state
        self.resets = 0
        self._next = count()

    def record(self) -> Rows:
        """Return the next record that has not been deleted."""
        i = next(self._next)
        return Rows(self._rows.codes[i : i + 1], self._rows.labels[i : i + 1])

    def forget(self) -> None:
        """Delete the next record: exact statistics, head, bound."""
        outcome = self._method.forget(self._config, self.state, self.record())
        self.resets += outcome.notes.get("reset", "none") != "none"
        self.state = outcome.state

    @property
    def tracked(self) -> Tracked:
        """The state as the recursions take it."""
        assert self.state.inverse is not None
        return Tracked(self.state.inverse, np.asarray(self.state.head, dtype=np.float64))


def measure(problem: Problem, size: ProblemSize) -> tuple[list[Line], dict[str, float]]:
    """Return the claims of the incremental methods, and the medians they rest on (seconds)."""
    rows, config = problem.rows, problem.config
    variant_a = DeletionStream(ridge_exact.METHOD, config, rows)
    variant_b = DeletionStream(ridge_woodbury.METHOD, config, rows)
    analytic = DeletionStream(acu.METHOD, config, rows)
    one = Rows(rows.codes[:1], rows.labels[:1])
    whole, fixed = variant_b.state.statistics, variant_b.tracked

    contenders: dict[str, Callable[[], object]] = {
        REFIT: problem.refit_without_first,
        "Variant B, update": lambda: woodbury(config, fixed, one, -1),
        "Variant B, update + statistics": lambda: (
            woodbury(config, fixed, one, -1),
            subtract(whole, one),
        ),
        "Variant B, with bound": variant_b.forget,
        "ACU, update": lambda: recur(config, fixed, [one], -1),
        "ACU, with bound": analytic.forget,
        "Variant A, canonical head": variant_a.forget,
    }
    sizes = [size.n // part for part in (20, 5, 2, 1)]
    streams = {n: _some(problem, n) for n in sizes}
    for n, stream in streams.items():
        contenders[f"Variant B, with bound, n {n}"] = stream.forget
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for work in contenders.values():
        work()  # warm caches and the libraries' threads
    for _ in range(size.rounds):
        for name, work in contenders.items():
            times[name].extend(seconds(work) for _ in range(1 if name == REFIT else CALLS))
    medians = {name: median(values) for name, values in times.items()}
    flat = [medians[f"Variant B, with bound, n {n}"] for n in sizes]
    return _lines(medians, flat, [variant_b, analytic, *streams.values()]), medians


def _some(problem: Problem, n: int) -> DeletionStream:
    rows = Rows(problem.rows.codes[:n], problem.rows.labels[:n])
    return DeletionStream(ridge_woodbury.METHOD, problem.config, rows)


def _lines(
    medians: dict[str, float], flat: list[float], streams: list[DeletionStream]
) -> list[Line]:
    def faster(name: str, target: float) -> Line:
        ratio = medians[REFIT] / medians[name]
        return Line(f"refit / {name}", ratio, f">= {target:g}", ratio >= target)

    spread = max(flat) / min(flat)
    worst = max(
        stream.state.bound / float(np.linalg.norm(stream.state.head)) for stream in streams
    )
    resets = sum(stream.resets for stream in streams)
    return [
        faster("Variant B, update", 300),
        faster("Variant B, update + statistics", 50),
        faster("Variant B, with bound", 10),
        faster("ACU, update", 300),
        faster("ACU, with bound", 10),
        Line("dearest / cheapest of 4 sizes n", spread, "<= 1.5", spread <= 1.5),
        Line("largest proven relative error at the end", worst, "< 1e-11", worst < 1e-11),
        Line("resets", float(resets), "= 0", resets == 0),
    ]


@click.command()
@click.option("--quick", is_flag=True, help="A small size: for a look, not for the claims.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write results here.")
def main(quick: bool, file: Path | None) -> None:
    """Measure one deletion by Variant B and ACU against refitting."""
    size = QUICK if quick else FULL
    click.echo(
        f"n {size.n}, d {size.d}, c {size.c}, {os.cpu_count()} cores, one record a deletion"
    )
    lines, medians = measure(make_problem(size), size)
    tell(size, lines, medians, quick=quick, file=file, width=34)


if __name__ == "__main__":
    main()
