"""What a verdict costs beside making the model again, as ratios measured in one run."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.common import Problem, Size, make_problem, seconds
from benchmarks.soundness import judging
from benchmarks.soundness.empirical import Facts
from benchmarks.soundness.ridge_problem import without
from workers.arrays import Rows
from workers.methods.ridge_exact import METHOD
from workers.statistics.encoding import statistics_digest
from workers.verifier.base import ClaimedStatistics, ExactClaim, Mode, RidgeClaim
from workers.verifier.exact import VERIFIER
from workers.verifier.row_digests import check_rows

FULL = (Size(20_000, 96, 10, 5), Size(20_000, 768, 10, 5))
QUICK = (Size(4_000, 96, 10, 3), Size(4_000, 384, 10, 3))
EXACT_TARGET, EMPIRICAL_TARGET = 1.0, 0.1


@dataclass(frozen=True, slots=True)
class Cost:
    """A verdict's median seconds over those of the making, and the ratio that is asked for.

    target None: reported only.
    """

    what: str
    beside: str
    ratio: float
    target: float | None


def exact(size: Size) -> list[Cost]:
    """Return the cost of judging the exact erasure of one record of n beside a refit.

    All checks run, the record commitments of n rows included. Contenders take turns.
    """
    problem = make_problem(size)
    work = _contenders(problem, size)
    for job in work.values():
        job()  # warm caches and the libraries' threads
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(size.rounds):
        for name, job in work.items():
            times[name].append(seconds(job))
    about = f"n {size.n:,}, d {size.d}"
    middle = {name: median(found) for name, found in times.items()}
    verdicts = ("full verdict", "Freivalds verdict")
    return [
        *(
            Cost(f"{what}, {about}", beside, middle[what] / middle[beside], target)
            for what in verdicts
            for beside, target in (("exact refit", EXACT_TARGET), ("scikit-learn refit", None))
        ),
        *(
            Cost(
                f"digests of rows, {about}",
                whole,
                middle["digests of rows"] / middle[whole],
                None,
            )
            for whole in verdicts
        ),
    ]


def empirical(facts: Sequence[Facts]) -> list[Cost]:
    """Return for each setting the median cost of a verdict beside one retraining."""
    found = []
    for setting in dict.fromkeys(fact.setting for fact in facts):
        ratios = [
            fact.verify_seconds / fact.retrain_seconds
            for fact in facts
            if fact.setting == setting
        ]
        what = f"empirical verdict, {setting}"
        found.append(Cost(what, "retraining", median(ratios), EMPIRICAL_TARGET))
    return found


def _contenders(problem: Problem, size: Size) -> dict[str, Callable[[], object]]:
    rest, config = without(problem.rows, (0,)), problem.config
    state = METHOD.refit(config, [rest]).state
    found = state.statistics
    earlier = METHOD.refit(config, [problem.rows]).state.statistics
    before_digest = statistics_digest(earlier, config.exponents, config.bits, config.penalty)
    sets, gone = judging.retained_set(size.n, (0,)), judging.purge(size.n, (0,))
    left = Rows(problem.rows.codes[1:], problem.rows.labels[1:])
    contents = judging.contents(problem.rows, (0,), left)

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
        claim = ExactClaim(ridge, [rest], sets, gone, contents=contents)
        if VERIFIER.verify(claim).result != "PASS":
            raise RuntimeError("the verifier refused a true claim")

    return {
        "full verdict": lambda: verdict("full"),
        "Freivalds verdict": lambda: verdict("freivalds"),
        "digests of rows": lambda: check_rows(contents, [rest]),
        "exact refit": lambda: METHOD.refit(config, [rest]),
        "scikit-learn refit": problem.refit_without_first,
    }
