"""(ε, δ) of Gaussian noise, against an integral of the densities."""

from math import exp, inf, log, nan, sqrt
from typing import Any

import pytest
from scipy.integrate import quad
from scipy.stats import norm

from workers.errors import RefusedError
from workers.methods.certified.budget import (
    Budget,
    BudgetSpentError,
    LooseResidualError,
    delta_above,
    largest_shift,
)


def integrated(shift: float, epsilon: float) -> float:
    """Return ∫ max(0, p - e^ε q) of N(shift, 1) and N(0, 1): the definition of δ."""
    begins = epsilon / shift + shift / 2  # where p overtakes e^ε q
    found, _ = quad(
        lambda x: norm.pdf(x - shift) - exp(epsilon) * norm.pdf(x),
        begins,
        begins + 40,
        epsabs=1e-16,
        limit=200,
    )
    return float(found)


@pytest.mark.parametrize("shift", [0.05, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_delta_is_the_integral_of_its_definition(shift: float, epsilon: float) -> None:
    exact = integrated(shift, epsilon)
    assert delta_above(shift, epsilon) == pytest.approx(exact, rel=1e-6, abs=1e-15)
    assert delta_above(shift, epsilon) >= exact - 1e-15


def test_the_largest_shift_keeps_delta_and_no_larger_one_does() -> None:
    for epsilon, delta in [(0.1, 1e-3), (1.0, 1e-5), (8.0, 1e-9), (20.0, 1e-30)]:
        found = largest_shift(epsilon, delta)
        assert delta_above(found, epsilon) <= delta
        assert delta_above(found * 1.001, epsilon) > delta
    assert delta_above(0.0, 1.0) == 0.0


def test_the_textbook_calibration_is_safe_below_one_and_wrong_far_above() -> None:
    def textbook(epsilon: float, delta: float) -> float:
        return epsilon / sqrt(2 * log(1.25 / delta))

    assert largest_shift(0.9, 1e-5) > textbook(0.9, 1e-5)
    assert largest_shift(20.0, 1e-5) < textbook(20.0, 1e-5)


def test_as_many_releases_as_registered_are_hidden_together() -> None:
    budget = Budget(0.5, 1.0, 1e-5, 9)
    together = sqrt(9 * budget.allowance**2) / budget.sigma
    assert integrated(together, 1.0) <= 1e-5
    assert integrated(together * 1.01, 1.0) > 1e-5
    assert Budget(0.5, 1.0, 1e-5, 1).allowance == pytest.approx(3 * budget.allowance)


def test_a_stream_ends_with_a_retraining() -> None:
    budget = Budget(0.5, 1.0, 1e-5, 3)
    for before in range(3):
        budget.spend(before, budget.allowance)
    with pytest.raises(BudgetSpentError, match="use retrain"):
        budget.spend(3, 0.0)
    for residual in (budget.allowance * 1.0001, nan, inf):
        with pytest.raises(LooseResidualError, match="larger sigma"):
            budget.spend(0, residual)


@pytest.mark.parametrize(
    "values",
    [
        (0.0, 1.0, 1e-5, 1), (nan, 1.0, 1e-5, 1), (inf, 1.0, 1e-5, 1), (-1.0, 1.0, 1e-5, 1),
        (1.0, 0.0, 1e-5, 1), (1.0, 21.0, 1e-5, 1), (1.0, nan, 1e-5, 1),
        (1.0, 1.0, 0.0, 1), (1.0, 1.0, 1.0, 1), (1.0, 1.0, nan, 1),
        (1.0, 1.0, 1e-5, 0), (1.0, 1.0, 1e-5, True), (1.0, 1.0, 1e-5, 1.0),
    ],
)  # fmt: skip
def test_what_is_no_budget(values: Any) -> None:
    with pytest.raises(RefusedError):
        Budget(*values)
