"""The cost of one deletion: flat in n, and against refitting, verification included.

Measured by `benchmarks.ridge_updates` and `benchmarks.fast_verification` on synthetic
features of the ridge paper's width, where n can be chosen: n 50,000, d 768, c 100.
"""

from dataclasses import dataclass
from statistics import median

from benchmarks import fast_verification, ridge_updates
from benchmarks.common import Line, Problem, ProblemSize, make_problem, refit, seconds

FULL, QUICK = ProblemSize(50_000, 768, 100, 5), ProblemSize(4_000, 192, 20, 3)
BOUNDED = "Variant B, with bound, n "


@dataclass(slots=True)
class ClaimedCosts:
    """Claims with their targets, medians in seconds, and the times by n.

    sizes holds n; deletion the seconds of a deletion by ridge-woodbury with its proven
    bound, refits those of scikit-learn's Ridge on as many rows.
    """

    n: int
    d: int
    c: int
    claims: list[Line]
    medians: dict[str, float]
    sizes: list[int]
    deletion: list[float]
    refits: list[float]


def measure(quick: bool) -> ClaimedCosts:
    """Return what one deletion costs."""
    size = QUICK if quick else FULL
    problem = make_problem(size)
    updates, update_medians = ridge_updates.measure(problem, size)
    verified, verified_medians = fast_verification.measure(problem, size)
    sizes = [
        int(name.removeprefix(BOUNDED)) for name in update_medians if name.startswith(BOUNDED)
    ]
    return ClaimedCosts(
        n=size.n,
        d=size.d,
        c=size.c,
        claims=[*updates, *verified],
        medians={**update_medians, **verified_medians},
        sizes=sizes,
        deletion=[update_medians[f"{BOUNDED}{n}"] for n in sizes],
        refits=[_refit(problem, n) for n in sizes],
    )


def _refit(problem: Problem, n: int) -> float:
    x, y, penalty = problem.features[:n], problem.targets[:n], problem.config.penalty
    return median(seconds(lambda: refit(x, y, penalty)) for _ in range(3))
