"""What the ridge benchmarks share: a problem of any size, a clock, and how claims are told.

Contenders take turns, so that a busy machine slows all of them, and ratios are of medians.
"""

import json
import os
import platform
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import click
import numpy as np
from sklearn.linear_model import Ridge

from workers.arrays import Labels, Matrix, Rows
from workers.blas_threads import threads_for
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.statistics.quantiser import calibrate

T = TypeVar("T")
PAUSE = 0.05  # BLAS threads spin for a while after a call and would slow the next contender


@dataclass(frozen=True, slots=True)
class ProblemSize:
    """Rows, columns, classes and rounds of measurement."""

    n: int
    d: int
    c: int
    rounds: int


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """One training set, as our rows and as the same numbers in float64 for scikit-learn."""

    rows: Rows
    config: RidgeConfig
    features: Matrix
    targets: Matrix

    def refit_without_first(self) -> Matrix:
        """Return scikit-learn's head (d, c) on all rows but the first."""
        return refit(self.features[1:], self.targets[1:], self.config.penalty)


@dataclass(frozen=True, slots=True)
class Line:
    """One claim: the measured value, its target, and whether it is met."""

    name: str
    value: float
    target: str
    met: bool


def make_problem(size: ProblemSize, seed: int = 0) -> Problem:
    """Return unit-norm clustered features, quantised with steps from 500 public rows."""
    rng = np.random.default_rng(seed)
    labels: Labels = rng.integers(0, size.c, size.n)
    centres = rng.normal(size=(size.c, size.d))
    mixing = rng.normal(size=(size.d, size.d)) / np.sqrt(size.d)
    raw = (0.3 * centres[labels] + rng.normal(size=(size.n, size.d))) @ mixing
    raw /= np.linalg.norm(raw, axis=1, keepdims=True)
    quantiser = calibrate(raw[:500])
    codes, _ = quantiser.quantise(raw)
    config = RidgeConfig(size.d, size.c, quantiser.exponents, quantiser.bits, 1.0)
    features = codes * np.ldexp(1.0, np.array(config.exponents))
    return Problem(Rows(codes, labels), config, features, np.eye(size.c)[labels])


def refit(features: Matrix, targets: Matrix, penalty: float) -> Matrix:
    """Return the head (d, c) of scikit-learn's Ridge, trained from scratch.

    It gets what our own methods get: one thread where the problem is too small for two.
    """
    model = Ridge(alpha=penalty, solver="cholesky", fit_intercept=False)
    with threads_for(features.shape[0] * features.shape[1] ** 2):
        coefficients: Matrix = model.fit(features, targets).coef_.T
    return coefficients


def seconds(work: Callable[[], object]) -> float:
    """Return how long one call takes."""
    return timed(work)[1]


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return what one call gives, and how long it takes."""
    time.sleep(PAUSE)
    started = time.perf_counter()
    result = work()
    return result, round(time.perf_counter() - started, 7)


def peak(work: Callable[[], object]) -> int:
    """Return the most bytes that one call holds at a time, beyond what was held before."""
    tracemalloc.start()
    work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def tell(
    size: ProblemSize,
    lines: Sequence[Line],
    medians: Mapping[str, float],
    *,
    quick: bool,
    file: Path | None,
    width: int = 28,
) -> None:
    """Print medians and claims, and write them to `file`; a quick run judges no claim."""
    for name, value in medians.items():
        click.echo(f"  {name:{width}} {1e3 * value:10.2f} ms")
    for line in lines:
        note = "" if line.met or quick else "   NOT MET"
        click.echo(f"{line.name:46} {line.value:10.3g}   {line.target}{note}")
    if file is not None:
        report = {
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "size": asdict(size),
            "seconds": dict(medians),
            "claims": [asdict(line) for line in lines],
        }
        file.write_text(json.dumps(report, indent=2) + "\n")
