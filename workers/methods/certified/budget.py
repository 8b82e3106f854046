"""The exact (ε, δ) of Gaussian noise, and how many erasures it hides.

N(m, σ²I) and N(m', σ²I) with ‖m - m'‖ = r are (ε, δ)-indistinguishable, both ways, iff

    δ >= Φ(r/2σ - εσ/r) - e^ε Φ(-r/2σ - εσ/r)        (Balle and Wang, ICML 2018, Theorem 8)

for every ε > 0. The better known σ >= r √(2 ln(1.25/δ)) / ε (Dwork and Roth 2014, Theorem
A.1), which Guo et al. build on, is proven for ε < 1 only, and is wrong for large ε.

Several releases, each with noise of its own, whose means are off by r_1, r_2, … are no worse
than one that is off by √(Σ r_t²) (Dong, Roth and Su, "Gaussian differential privacy", 2022),
even where a request depends on earlier releases, as long as the sum stays within the budget
(Smith and Thakurta, "Fully adaptive composition for Gaussian differential privacy", 2022).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import erfc, exp, isfinite, sqrt

from workers.errors import RefusedError

LARGEST_EPSILON = 20.0
# Covers the rounding of both terms: a few units of erfc's own, and of its argument, which
# erfc amplifies by its square, at most 38² before the result underflows.
ROUNDING = 2.0**-36
UNDERFLOW = 1e-300


class BudgetSpentError(RefusedError):
    """The registered noise hides no further release."""


class LooseResidualError(RefusedError):
    """The optimum was not reached closely enough for the registered noise."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Noise of standard deviation sigma for each weight, and the (ε, δ) it must give.

    releases: the number of models hidden together between two trainings. Each may be off by
    up to `allowance`. The budget spends a count, not the real distances: a count reveals
    nothing about the rows. Raises RefusedError for values out of range.
    """

    sigma: float
    epsilon: float
    delta: float
    releases: int

    def __post_init__(self) -> None:
        if not (isfinite(self.sigma) and self.sigma > 0):
            raise RefusedError("sigma: must be a positive number")
        if not 0 < self.epsilon <= LARGEST_EPSILON:
            raise RefusedError("epsilon: must be above 0 and at most 20")
        if not 1e-100 <= self.delta < 1:
            raise RefusedError("delta: must lie between 1e-100 and 1")
        if type(self.releases) is not int or not 1 <= self.releases <= 1 << 20:
            raise RefusedError("releases: must be an integer from 1 to 2^20")

    @property
    def allowance(self) -> float:
        """The largest r with √releases · r hidden by the noise, rounded down."""
        hidden = largest_shift(self.epsilon, self.delta) * self.sigma
        return hidden / sqrt(self.releases) * (1 - 2.0**-40)

    def spend(self, before: int, residual: float) -> None:
        """Check that one more release, `residual` off, fits after `before` earlier ones.

        Raises BudgetSpentError after the last one, LooseResidualError for one too far off.
        """
        if before >= self.releases:
            raise BudgetSpentError(
                f"the noise was registered for {self.releases} releases between trainings, "
                "and they were made: use retrain, which begins a new budget"
            )
        if not residual <= self.allowance:
            raise LooseResidualError(
                f"the optimum was reached within about {residual:.0e} and the noise hides "
                f"{self.allowance:.3g} for each release: register a larger sigma, more weight "
                "decay or fewer releases, or use retrain"
            )


def delta_above(shift: float, epsilon: float) -> float:
    """Return a number no less than the δ of means `shift` standard deviations apart.

    It is above the true one by less than 2^-35 of Φ(shift/2 - ε/shift).
    """
    if shift == 0:
        return 0.0
    near, far = shift / 2 - epsilon / shift, -shift / 2 - epsilon / shift
    first, second = erfc(-near / sqrt(2)) / 2, exp(epsilon) * erfc(-far / sqrt(2)) / 2
    return max(0.0, first - second) + ROUNDING * first + UNDERFLOW


def largest_shift(epsilon: float, delta: float) -> float:
    """Return a shift, in standard deviations, with `delta_above` <= delta, near the largest."""
    return largest_within(delta, lambda shift: delta_above(shift, epsilon))


def largest_within(delta: float, delta_at: Callable[[float], float]) -> float:
    """Return an x with delta_at(x) <= delta, near the largest; delta_at must not decrease."""
    low, high = 0.0, 1.0
    while delta_at(high) <= delta:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        if delta_at(middle) <= delta:
            low = middle
        else:
            high = middle
    return low
