"""What exact ridge unlearning costs, as ratios measured in one run.

    python -m benchmarks.ridge_head [--quick] [--json FILE]

Every round measures each contender in turn, so that a busy machine slows all of them, and
the short ones several times; ratios are of medians over all calls. The full size is
n 50,000, d 768, c 100 and needs about 1 GB.
"""

import json
import os
import platform
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from statistics import median

import click
import numpy as np
from sklearn.linear_model import Ridge

from workers.arrays import Labels, Matrix, Rows
from workers.artifacts import encode_head
from workers.methods.base import RidgeConfig
from workers.methods.canonical_head import canonical_head
from workers.methods.ridge_exact import METHOD
from workers.methods.ridge_system import solve_float
from workers.statistics.encoding import statistics_digest
from workers.statistics.gram import RidgeStatistics, accumulate, subtract
from workers.statistics.quantiser import calibrate
from workers.verifier.base import RidgeClaim
from workers.verifier.head import check_head
from workers.verifier.statistics import check_statistics

SHORT_CALLS = 5
PAUSE = 0.05  # BLAS threads spin for a while after a call and would slow the next contender


@dataclass(frozen=True, slots=True)
class Size:
    """Rows, columns, classes and rounds of measurement."""

    n: int
    d: int
    c: int
    rounds: int


FULL, QUICK = Size(50_000, 768, 100, 7), Size(5_000, 256, 20, 5)


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """One training set, as our rows and as the same numbers in float64 for scikit-learn."""

    rows: Rows
    config: RidgeConfig
    features: Matrix
    targets: Matrix


@dataclass(frozen=True, slots=True)
class Line:
    """One claim: the measured value, its target, and whether it is met."""

    name: str
    value: float
    target: str
    met: bool


def make_problem(size: Size, seed: int = 0) -> Problem:
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


def seconds(work: Callable[[], object]) -> float:
    """Return how long one call takes."""
    time.sleep(PAUSE)
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def peak(work: Callable[[], object]) -> int:
    """Return the most bytes that one call holds at a time, beyond what was held before."""
    tracemalloc.start()
    work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def measure(problem: Problem, size: Size) -> tuple[list[Line], dict[str, float]]:
    """Return the claims of the exact ridge head, and the medians they rest on (seconds)."""
    rows, config = problem.rows, problem.config
    one, rest = Rows(rows.codes[:1], rows.labels[:1]), Rows(rows.codes[1:], rows.labels[1:])
    whole = accumulate([rows], size.d, size.c)
    after = METHOD.forget(config, METHOD.refit(config, [rows]).state, one).state

    def refit() -> Matrix:
        model = Ridge(alpha=config.penalty, solver="cholesky", fit_intercept=False)
        coefficients: Matrix = model.fit(problem.features[1:], problem.targets[1:]).coef_.T
        return coefficients

    def removed() -> RidgeStatistics:
        return subtract(whole, one)

    contenders: dict[str, Callable[[], object]] = {
        "plain float64 Gram": lambda: problem.features.T @ problem.features,
        "exact statistics": lambda: accumulate([rows], size.d, size.c),
        "scikit-learn refit": refit,
        "deletion, float head": lambda: solve_float(removed(), config),
        "deletion, canonical head": lambda: canonical_head(removed(), config),
    }
    for work in contenders.values():
        work()  # warm caches and the libraries' threads
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(size.rounds):
        for name, work in contenders.items():
            calls = SHORT_CALLS if name.startswith("deletion") else 1
            times[name].extend(seconds(work) for _ in range(calls))
    medians = {name: median(values) for name, values in times.items()}
    gram = whole.gram.nbytes
    float_peak = peak(contenders["deletion, float head"]) / gram
    canonical_peak = peak(contenders["deletion, canonical head"]) / gram
    claim = RidgeClaim(
        size.d,
        size.c,
        config.exponents,
        config.bits,
        config.penalty,
        statistics_digest(after.statistics, config.exponents, config.bits, config.penalty),
        after.head,
        after.witness,
        after.bound,
    )
    judged, recomputed = check_statistics(claim, [rest])
    medians["verifier, statistics"] = seconds(lambda: check_statistics(claim, [rest]))
    medians["verifier, head"] = seconds(lambda: check_head(claim, recomputed))
    if not (judged.check.passed and check_head(claim, recomputed).check.passed):
        raise click.ClickException("the verifier rejects the unlearned head")
    files = [
        sha256(encode_head(state.head, config)).hexdigest()
        for state in (after, METHOD.refit(config, [rest]).state)
    ]
    distance = np.linalg.norm(after.witness.sum(axis=0) - refit()) / np.linalg.norm(after.head)
    refitted = medians["scikit-learn refit"]
    ratio = medians["exact statistics"] / medians["plain float64 Gram"]
    faster_float = refitted / medians["deletion, float head"]
    faster = refitted / medians["deletion, canonical head"]
    same = files[0] == files[1]
    return [
        Line("exact statistics / plain float64 Gram", ratio, "<= 2", ratio <= 2),
        Line("refit / deletion + float head", faster_float, ">= 50", faster_float >= 50),
        Line("refit / deletion + canonical head and bound", faster, ">= 4", faster >= 4),
        Line("peak of a deletion + float head / size of G", float_peak, "< 3", float_peak < 3),
        Line(
            "peak with the canonical head / size of G",
            canonical_peak,
            "< 3",
            canonical_peak < 3,
        ),
        Line("unlearned file = retrained file (1 = yes)", float(same), "= 1", same),
        Line(
            "relative distance to scikit-learn",
            float(distance),
            "< 1e-9",
            bool(distance < 1e-9),
        ),
        Line("proven bound on the witness", after.bound, "< 1e-20", after.bound < 1e-20),
    ], medians


@click.command()
@click.option("--quick", is_flag=True, help="A small size: for a look, not for the claims.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write results here.")
def main(quick: bool, file: Path | None) -> None:
    """Measure the exact ridge head against refitting it."""
    size = QUICK if quick else FULL
    click.echo(
        f"n {size.n}, d {size.d}, c {size.c}, {os.cpu_count()} cores, one record deleted"
    )
    lines, medians = measure(make_problem(size), size)
    for name, value in medians.items():
        click.echo(f"  {name:28} {1e3 * value:10.2f} ms")
    for line in lines:
        note = "" if line.met or quick else "   NOT MET"
        click.echo(f"{line.name:46} {line.value:10.3g}   {line.target}{note}")
    if file is not None:
        report = {
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "size": asdict(size),
            "seconds": medians,
            "claims": [asdict(line) for line in lines],
        }
        file.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
