"""What verifying an unlearned ridge head costs, as ratios measured in one run.

    python -m benchmarks.fast_verification [--quick] [--json FILE]

One record of n is deleted and a float64 head published. Full verification sums the
retained rows again; the fast one tests the claimed statistics against them (Freivalds, two
primes) and proves the head's distance to the solution. Contenders take turns, so that a busy
machine slows all; ratios are of medians. The full size is n 50,000, d 768, c 100.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median

import click

from benchmarks.common import Line, Problem, ProblemSize, make_problem, seconds, tell
from benchmarks.ridge_head import FULL, QUICK, check_statistics
from workers.arrays import Matrix, Rows
from workers.judge.base import Judgement
from workers.judge.ridge.claim import ClaimedStatistics, RidgeClaim
from workers.judge.ridge.freivalds import Testing
from workers.judge.ridge.head import check_bound
from workers.judge.ridge.posterior import check_posterior
from workers.judge.ridge.statistics import Recomputed
from workers.methods.ridge.ridge_system import solve_float
from workers.methods.ridge.statistics.gram import (
    RidgeStatistics,
    accumulate,
    statistics_digest,
    subtract,
)


def check_claimed(
    claim: RidgeClaim, rows: Iterable[Rows]
) -> tuple[Judgement, Recomputed | None]:
    """Judge the claimed statistics against rows that are all given."""
    with Testing(claim) as test:
        for block in rows:
            test.take(block)
        return test.judge()


def measure(problem: Problem, size: ProblemSize) -> tuple[list[Line], dict[str, float]]:
    """Return the claims about verification, and the medians they rest on (seconds)."""
    rows, config = problem.rows, problem.config
    one, rest = Rows(rows.codes[:1], rows.labels[:1]), [Rows(rows.codes[1:], rows.labels[1:])]
    whole = accumulate([rows], size.d, size.c)

    def delete() -> tuple[RidgeStatistics, Matrix]:
        after = subtract(whole, one)
        return after, solve_float(after, config)

    after, head = delete()
    claim = RidgeClaim(
        size.d,
        size.c,
        config.exponents,
        config.bits,
        config.penalty,
        statistics_digest(after, config.exponents, config.bits, config.penalty),
        head,
        head[:0, None],
        bound=1e-6,
        statistics=ClaimedStatistics(after.gram, after.moment, after.rows),
        mode="freivalds",
        seed=os.urandom(32),
    )

    def verify() -> tuple[Judgement, Judgement]:
        # As a verifier must: with a seed nobody could know.
        first, verified = check_claimed(replace(claim, seed=os.urandom(32)), rest)
        return first, check_bound(claim, verified)

    _, recomputed = check_statistics(claim, rest)

    contenders: dict[str, Callable[[], object]] = {
        "scikit-learn refit": problem.refit_without_first,
        "full recompute": lambda: check_statistics(claim, rest),
        "Freivalds": lambda: check_claimed(claim, rest),
        "bound on the head": lambda: check_bound(claim, recomputed),
        "Freivalds + bound": verify,
        "verified deletion": lambda: (delete(), verify()),
        "posterior": lambda: check_posterior(claim, rest, recomputed),
    }
    for work in contenders.values():
        work()  # warm caches and the libraries' threads
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(size.rounds):
        for name, work in contenders.items():
            times[name].append(seconds(work))
    medians = {name: median(values) for name, values in times.items()}
    judgements = (*verify(), check_posterior(claim, rest, recomputed))
    if not all(judgement.check.passed for judgement in judgements):
        raise click.ClickException("the verifier rejects the unlearned head")
    refitted, full = medians["scikit-learn refit"], medians["full recompute"]
    cheaper = full / medians["Freivalds"]
    faster = full / medians["Freivalds + bound"]
    verified = refitted / medians["Freivalds + bound"]
    deleted = refitted / medians["verified deletion"]
    proven = float(judgements[1].check.value)
    return [
        Line("full recompute / Freivalds", cheaper, ">= 3.3", cheaper >= 3.3),
        Line("full recompute / (Freivalds + bound)", faster, ">= 3.3", faster >= 3.3),
        Line("refit / (Freivalds + bound)", verified, ">= 10", verified >= 10),
        Line("refit / verified deletion", deleted, ">= 10", deleted >= 10),
        Line("proven bound on the float64 head", proven, "< 1e-9", proven < 1e-9),
    ], medians


@click.command()
@click.option("--quick", is_flag=True, help="A small size: for a look, not for the claims.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write results here.")
def main(quick: bool, file: Path | None) -> None:
    """Measure verification by random test and proven bound against recomputing."""
    size = QUICK if quick else FULL
    click.echo(f"n {size.n}, d {size.d}, c {size.c}, {os.cpu_count()} cores")
    lines, medians = measure(make_problem(size), size)
    tell(size, lines, medians, quick=quick, file=file)


if __name__ == "__main__":
    main()
