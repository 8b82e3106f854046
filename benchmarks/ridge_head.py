"""What exact ridge unlearning costs, as ratios measured in one run.

    python -m benchmarks.ridge_head [--quick] [--json FILE]

Every round measures each contender in turn, so that a busy machine slows all of them, and
the short ones several times; ratios are of medians over all calls. The full size is
n 50,000, d 768, c 100 and needs about 1 GB.
"""

import os
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from statistics import median

import click
import numpy as np

from benchmarks.common import Line, Problem, ProblemSize, make_problem, peak, seconds, tell
from workers.arrays import Rows
from workers.artifacts import encode_head
from workers.judge.base import Judgement
from workers.judge.ridge.claim import RidgeClaim
from workers.judge.ridge.head import check_rounded
from workers.judge.ridge.statistics import Recomputed, Recomputing
from workers.methods.ridge.canonical_head import canonical_head
from workers.methods.ridge.ridge_exact import METHOD
from workers.methods.ridge.ridge_system import solve_float
from workers.methods.ridge.statistics.gram import (
    RidgeStatistics,
    accumulate,
    statistics_digest,
    subtract,
)

SHORT_CALLS = 5
FULL, QUICK = ProblemSize(50_000, 768, 100, 7), ProblemSize(5_000, 256, 20, 5)


def check_statistics(
    claim: RidgeClaim, rows: Iterable[Rows]
) -> tuple[Judgement, Recomputed | None]:
    """Judge the statistics of rows that are all given."""
    test = Recomputing(claim)
    for block in rows:
        test.take(block)
    return test.judge()


def measure(problem: Problem, size: ProblemSize) -> tuple[list[Line], dict[str, float]]:
    """Return the claims of the exact ridge head, and the medians they rest on (seconds)."""
    rows, config = problem.rows, problem.config
    one, rest = Rows(rows.codes[:1], rows.labels[:1]), Rows(rows.codes[1:], rows.labels[1:])
    whole = accumulate([rows], size.d, size.c)
    after = METHOD.forget(config, METHOD.refit(config, [rows]).state, one).state

    def removed() -> RidgeStatistics:
        return subtract(whole, one)

    contenders: dict[str, Callable[[], object]] = {
        "plain float64 Gram": lambda: problem.features.T @ problem.features,
        "exact statistics": lambda: accumulate([rows], size.d, size.c),
        "scikit-learn refit": problem.refit_without_first,
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
    medians["verifier, head"] = seconds(lambda: check_rounded(claim, recomputed))
    if not (judged.check.passed and check_rounded(claim, recomputed).check.passed):
        raise click.ClickException("the verifier rejects the unlearned head")
    files = [
        sha256(encode_head(state.head, config)).hexdigest()
        for state in (after, METHOD.refit(config, [rest]).state)
    ]
    distance = np.linalg.norm(
        after.witness.sum(axis=0) - problem.refit_without_first()
    ) / np.linalg.norm(after.head)
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
    tell(size, lines, medians, quick=quick, file=file)


if __name__ == "__main__":
    main()
