"""The privacy cost of noisy fine-tuning: zero-concentrated DP of its last iterate.

Compare two runs of `workers.training.fedavg.noisy` on the same retained rows with the same
noise, one from the published model and one from any other start (privacy amplification by
iteration: Feldman, Mironov, Talwar and Thakurta, FOCS 2018). With c = 1 - γλ, let z_t bound
the distance still to hide after step t:

    z_0 = 2C₀,    z_{t+1} = c z_t + 2γC₁ - a_{t+1} >= 0,    z_T = 0.

A step maps points z apart to points at most cz + 2γC₁ apart, as clipped gradients differ by at
most 2C₁ whatever the loss is. Its noise hides a shift of a_{t+1} at a Rényi divergence of
α a²/(2σ²) (shift reduction), so the last iterates are ρ-zCDP with ρ = Σ a_t²/(2σ²). z_T = 0 is
the one linear condition Σ c^(T-t) a_t = B := 2C₀ c^T + 2γC₁ Σ_{j<T} c^j. The least Σ a_t² under
it is B²/S with S = Σ_{j<T} c^(2j), at a_t = B c^(T-t)/S. These a_t grow with t and a_T >= 2γC₁
(or z would grow forever), so no z_t is negative. For λ = 0 it is (2C₀ + 2γC₁T)²/T.
"""

from dataclasses import dataclass
from math import exp, isfinite, log, log1p, sqrt

from workers.errors import RefusedError


@dataclass(frozen=True, slots=True)
class Promise:
    """The (ε, δ) promised for `releases` models together, between two trainings.

    Raises RefusedError for a value out of range.
    """

    epsilon: float
    delta: float
    releases: int

    def __post_init__(self) -> None:
        if not (isfinite(self.epsilon) and 0 < self.epsilon <= 100):
            raise RefusedError("epsilon: must be above 0 and at most 100")
        if not 1e-100 <= self.delta < 1:
            raise RefusedError("delta: must lie between 1e-100 and 1")
        if type(self.releases) is not int or not 1 <= self.releases <= 1 << 20:
            raise RefusedError("releases: must be an integer from 1 to 2^20")


def shift_squares(
    steps: int, start_norm: float, gradient_norm: float, learning_rate: float, pull: float
) -> float:
    """Return the least Σ a_t², as derived above."""
    keeps = 1 - learning_rate * pull
    powers = [keeps**step for step in range(steps)]
    hidden = 2 * start_norm * keeps**steps + 2 * learning_rate * gradient_norm * sum(powers)
    return hidden**2 / sum(power**2 for power in powers)


def delta_of(rho: float, epsilon: float) -> float:
    """Return δ for which ρ-zCDP gives (ε, δ).

    inf over α > 1 of exp((α - 1)(αρ - ε)) (1 - 1/α)^α / (α - 1): Canonne, Kamath and Steinke,
    NeurIPS 2020, Proposition 12. The logarithm is convex in α, with the derivative
    (2α - 1)ρ - ε + ln(1 - 1/α); any α gives a true bound.
    """
    low, high = 1 + 1e-9, 2.0
    while _slope(high, rho, epsilon) < 0:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        if _slope(middle, rho, epsilon) < 0:
            low = middle
        else:
            high = middle
    order = high
    power = (order - 1) * (order * rho - epsilon) + order * log1p(-1 / order)
    return exp(min(0.0, power - log(order - 1)))


def _slope(order: float, rho: float, epsilon: float) -> float:
    return (2 * order - 1) * rho - epsilon + log1p(-1 / order)


def largest_rho(epsilon: float, delta: float) -> float:
    """Return a ρ with delta_of(ρ, ε) <= δ, near the largest."""
    low, high = 0.0, 1.0
    while delta_of(high, epsilon) <= delta:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        if delta_of(middle, epsilon) <= delta:
            low = middle
        else:
            high = middle
    return low


def sigma_for(promise: Promise, squares: float) -> float:
    """Return the σ at which the promised releases, with Σ a_t² each, keep (ε, δ).

    The ρ of several releases add up, even where a request depends on earlier ones (Bun and
    Steinke, TCC 2016, Lemma 2.3). Rounded up, so that another evaluation agrees.
    """
    rho = largest_rho(promise.epsilon, promise.delta)
    return sqrt(promise.releases * squares / (2 * rho)) * (1 + 2.0**-20)
