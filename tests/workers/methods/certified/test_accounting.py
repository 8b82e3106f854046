"""The privacy cost of noisy fine-tuning, against SciPy, quadrature and published numbers."""

from math import exp, log, sqrt

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import lsq_linear
from scipy.stats import norm

from workers.errors import RefusedError
from workers.judge.certified.noisy import NoisyTerms, smallest_delta, spent
from workers.methods.certified.noisy_finetuning import (
    Promise,
    delta_of,
    largest_rho,
    shift_squares,
    sigma_for,
)

# (steps, C₀, C₁, γ, λ): without a pull, with one, with one that forgets the start.
SCHEDULES = [
    (1, 0.3, 0.1, 0.5, 0.0),
    (6, 0.3, 0.1, 0.5, 0.0),
    (6, 0.3, 0.1, 0.5, 0.4),
    (5, 2.0, 0.01, 1.0, 0.9),
    (4, 0.01, 1.0, 0.1, 5.0),
]


def minimised(steps: int, c0: float, c1: float, rate: float, pull: float) -> float:
    """Return the least Σ a² with every z_t >= 0 and z_T = 0: bounded least squares in z."""
    keeps, adds = 1 - rate * pull, 2 * rate * c1
    # a_t = c z_{t-1} + e - z_t, with z_0 and z_T given.
    matrix = keeps * np.eye(steps, steps + 1) - np.eye(steps, steps + 1, 1)
    fixed = adds + matrix[:, 0] * 2 * c0
    if steps == 1:
        return float(fixed @ fixed)
    found = lsq_linear(matrix[:, 1:-1], -fixed, bounds=(0, np.inf), method="bvls", tol=1e-15)
    return float(2 * found.cost)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_shifts_are_the_least_that_leave_nothing(
    schedule: tuple[int, float, float, float, float],
) -> None:
    found = shift_squares(*schedule)
    assert found == pytest.approx(minimised(*schedule), rel=1e-9)
    steps, c0, c1, rate, pull = schedule
    if not pull:
        assert found == pytest.approx((2 * c0 + 2 * rate * c1 * steps) ** 2 / steps, rel=1e-12)
    # The judge follows the shifts step by step and must not find less.
    terms = NoisyTerms(steps, c0, c1, rate, pull, 1.0, 1e-5, 1)
    assert spent(terms, 2.0) * 8 == pytest.approx(found, rel=1e-9)
    assert spent(terms, 2.0) * 8 >= found * (1 - 1e-12)


@pytest.mark.parametrize(("rho", "epsilon"), [(0.02, 1.0), (0.5, 4.0), (1.0, 8.0), (3.0, 20.0)])
def test_delta_bounds_a_gaussian_of_that_rho_and_beats_the_textbook(
    rho: float, epsilon: float
) -> None:
    shift = sqrt(2 * rho)  # N(shift, 1) and N(0, 1) are exactly ρ-zCDP
    begins = epsilon / shift + shift / 2
    exact, _ = quad(
        lambda x: norm.pdf(x - shift) - exp(epsilon) * norm.pdf(x), begins, begins + 40
    )
    found = delta_of(rho, epsilon)
    textbook = exp(-((epsilon - rho) ** 2) / (4 * rho))  # Bun and Steinke 2016, Lemma 3.5
    assert exact <= found < textbook / 2
    assert smallest_delta(rho, epsilon) == pytest.approx(found, rel=1e-9)
    # The infimum over a grid of orders, straight from the formula.
    orders = 1 + np.exp(np.linspace(-8, 8, 200_001))
    powers = (orders - 1) * (orders * rho - epsilon) + orders * np.log1p(-1 / orders)
    assert found == pytest.approx(float(np.exp((powers - np.log(orders - 1)).min())), rel=1e-6)


def test_no_rho_promises_more_than_everything() -> None:
    assert delta_of(50.0, 1.0) == smallest_delta(50.0, 1.0) == 1.0
    assert smallest_delta(float("inf"), 1.0) == smallest_delta(float("nan"), 1.0) == 1.0


def test_sigma_keeps_the_promise_of_all_releases_and_no_smaller_one_does() -> None:
    terms = NoisyTerms(4, 0.1, 0.05, 0.5, 0.1, 1.0, 1e-5, 3)
    squares = shift_squares(4, 0.1, 0.05, 0.5, 0.1)
    sigma = sigma_for(Promise(1.0, 1e-5, 3), squares)
    assert smallest_delta(3 * spent(terms, sigma), 1.0) <= 1e-5
    assert smallest_delta(3 * spent(terms, sigma * (1 - 1e-5)), 1.0) > 1e-5
    assert sigma == pytest.approx(sqrt(3) * sigma_for(Promise(1.0, 1e-5, 1), squares))
    # The simple conversion ε = ρ + 2√(ρ ln(1/δ)) would need more noise.
    rho = largest_rho(1.0, 1e-5)
    assert rho + 2 * sqrt(rho * log(1e5)) > 1.0


@pytest.mark.parametrize(
    ("epsilon", "delta", "releases", "word"),
    [(0.0, 1e-5, 1, "epsilon"), (1.0, 0.0, 1, "delta"), (1.0, 1e-5, 0, "releases")],
)
def test_promises_out_of_range_are_refused(
    epsilon: float, delta: float, releases: int, word: str
) -> None:
    with pytest.raises(RefusedError, match=word):
        Promise(epsilon, delta, releases)
