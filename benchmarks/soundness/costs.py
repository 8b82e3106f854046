"""What a verdict costs beside making the model again, as ratios measured in one run."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time

from app.retained_pages import RetainedSet
from benchmarks.common import Problem, ProblemSize, make_problem, seconds
from benchmarks.soundness import judging
from benchmarks.soundness.empirical import Facts
from benchmarks.soundness.ridge_problem import without
from workers.arrays import Rows
from workers.blas_threads import threads_for
from workers.families.ridge import stored
from workers.families.ridge.rows import row_digests
from workers.families.ridge.stored import RowBlock
from workers.judge.ridge.chain import sets_of
from workers.judge.ridge.claim import (
    ClaimedStatistics,
    ExactClaim,
    Mode,
    RemovalClaim,
    RidgeClaim,
)
from workers.judge.ridge.reading import LeafSort, leaves_of
from workers.judge.ridge.verdict import EXACT as VERIFIER
from workers.methods.ridge.ridge_exact import METHOD
from workers.methods.ridge.statistics.gram import statistics_digest

FULL = (
    ProblemSize(20_000, 96, 10, 15),
    ProblemSize(20_000, 256, 10, 15),
    ProblemSize(20_000, 768, 10, 9),
)
QUICK = (ProblemSize(4_000, 96, 10, 3), ProblemSize(4_000, 384, 10, 3))
EMPIRICAL_TARGET = 0.1
# What a verdict is measured beside, and the ratio that is asked for.
BESIDE = {"published refit": 1.0, "exact refit": None, "scikit-learn refit": None}


@dataclass(frozen=True, slots=True)
class VerdictCost:
    """A verdict's median seconds over those of the making, and the ratio that is asked for.

    ratio: of processor time for ridge heads, of time passed for networks; wall: of time
    passed, where both were measured. target None: reported only.
    """

    what: str
    beside: str
    ratio: float
    target: float | None
    wall: float | None = None


def exact(size: ProblemSize) -> list[VerdictCost]:
    """Return the cost of judging the exact erasure of one record of n beside a refit.

    All checks run, the record commitments of n rows included. Contenders take turns, with
    one thread in BLAS: several wait for each other by spinning, which is processor time too.
    """
    problem = make_problem(size)
    work = _contenders(problem, size)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
    with threads_for(1):
        for job in work.values():
            job()  # warm caches
        for _ in range(size.rounds):
            for name, job in work.items():
                started = process_time()
                passed = seconds(job)
                times[name].append((process_time() - started, passed))
    about = f"n {size.n:,}, d {size.d}"
    used, passed_in = (
        {name: median(both[clock] for both in found) for name, found in times.items()}
        for clock in (0, 1)
    )

    def cost(what: str, beside: str, target: float | None) -> VerdictCost:
        ratio, wall = (clock[what] / clock[beside] for clock in (used, passed_in))
        return VerdictCost(f"{what}, {about}", beside, ratio, target, wall)

    verdicts = ("full verdict", "Freivalds verdict")
    return [
        *(cost(what, beside, BESIDE[beside]) for what in verdicts for beside in BESIDE),
        *(cost("digests of rows", whole, None) for whole in verdicts),
    ]


def empirical(facts: Sequence[Facts]) -> list[VerdictCost]:
    """Return for each setting the median cost of a verdict beside one retraining."""
    found = []
    for setting in dict.fromkeys(fact.setting for fact in facts):
        ratios = [
            fact.verify_seconds / fact.retrain_seconds
            for fact in facts
            if fact.setting == setting
        ]
        what = f"empirical verdict, {setting}"
        found.append(VerdictCost(what, "retraining", median(ratios), EMPIRICAL_TARGET))
    return found


def _contenders(problem: Problem, size: ProblemSize) -> dict[str, Callable[[], object]]:
    rest, config = without(problem.rows, (0,)), problem.config
    state = METHOD.refit(config, [rest]).state
    found = state.statistics
    earlier = METHOD.refit(config, [problem.rows]).state.statistics
    before_digest = statistics_digest(earlier, config.exponents, config.bits, config.penalty)
    left = Rows(problem.rows.codes[1:], problem.rows.labels[1:])
    told = judging.rows_claims(problem.rows, (0,), left)
    removal = RemovalClaim(told.link, judging.purge(size.n, (0,)))

    def verdict(mode: Mode) -> None:
        ridge = RidgeClaim(
            config.dimension,
            config.classes,
            config.exponents,
            config.bits,
            config.penalty,
            statistics_digest(found, config.exponents, config.bits, config.penalty),
            state.head,
            state.witness,
            state.bound,
            statistics=ClaimedStatistics(found.gram, found.moment, found.rows),
            mode=mode,
            seed=os.urandom(32),
            before=ClaimedStatistics(earlier.gram, earlier.moment, earlier.rows),
            before_digest=before_digest,
        )
        claim = ExactClaim(ridge, told.blocks, told.chain, [removal], contents=told.contents)
        if VERIFIER.verify(claim).result != "PASS":
            raise RuntimeError("the verifier refused a true claim")

    def publish() -> None:
        """Refit, and compute all that the log says of a version made by a refit."""
        made = METHOD.refit(config, [rest]).state
        salts = kept.salts, kept.id_salts
        block = RowBlock(list(kept.records), rest, *salts, kept.learned)
        digests = row_digests(block, (kept.client, kept.subject))
        stored.encode(made, config)
        RetainedSet.of(sorted(zip(commitments, digests, strict=True)))

    [kept] = told.blocks
    commitments = [*map(bytes, leaves_of(kept).commitments)]
    return {
        "full verdict": lambda: verdict("full"),
        "Freivalds verdict": lambda: verdict("freivalds"),
        "digests of rows": lambda: sets_of(told.chain, LeafSort(leaves_of(kept))),
        "published refit": publish,
        "exact refit": lambda: METHOD.refit(config, [rest]),
        "scikit-learn refit": problem.refit_without_first,
    }
