"""Decisions near rounding boundaries, against float32 itself and exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzz
from tests.workers.methods.ridge.oracle import round_to_float32
from workers.errors import RefusedError
from workers.methods.ridge.canonical_head import round_exactly, round_weights

F32 = st.floats(-(2.0**126), 2.0**126, width=32)
MIDPOINT = 1 + 2.0**-24  # between 1 and 1 + 2^-23; 1 is even
ODD_MIDPOINT = 1 + 3 * 2.0**-24  # between 1 + 2^-23 and the even 1 + 2^-22


def decide(terms: list[float], bound: float) -> float | None:
    arrays = [np.array([[term]]) for term in terms]
    head = round_weights(arrays, np.array([bound]), np.zeros((1, 1), dtype=bool))
    return None if head is None else float(head[0, 0])


@given(st.floats(-1e37, 1e37), st.floats(2.0**-250, 2.0**-120))
@fuzz(500)
def test_decides_alike_with_floats_and_with_fractions(value: float, bound: float) -> None:
    got = decide([value], bound)
    assert got == round_exactly(Fraction(value), Fraction(bound))
    if got is not None:
        assert got == round_to_float32(Fraction(value))


@given(F32, st.integers(-4, 4), st.floats(2.0**-250, 2.0**-60))
@fuzz(500)
def test_a_decision_holds_for_every_number_within_the_bound(
    near: float, ulps: int, bound: float
) -> None:
    value = float(np.float64(near) * (1 + ulps * 2.0**-26))
    got = decide([value], bound)
    ends = {round_to_float32(Fraction(value) + sign * Fraction(bound)) for sign in (-1, 0, 1)}
    if got is not None and abs(got) < 3e38:
        assert ends == {got}


@pytest.mark.parametrize(
    ("terms", "bound", "expected"),
    [
        ([MIDPOINT], 2.0**-60, None),
        ([MIDPOINT], 0.0, 1.0),
        ([-MIDPOINT], 0.0, -1.0),
        ([ODD_MIDPOINT], 0.0, 1 + 2.0**-22),
        ([MIDPOINT], 2.0**-300, 1.0),
        ([MIDPOINT], 2.0**-256, None),
        ([MIDPOINT, 2.0**-80], 2.0**-81, 1 + 2.0**-23),
        ([MIDPOINT, -(2.0**-80)], 2.0**-81, 1.0),
        ([MIDPOINT, 2.0**-80], 2.0**-80, None),
        ([MIDPOINT, 2.0**-200], 2.0**-201, 1 + 2.0**-23),
        ([MIDPOINT, 2.0**-80, -(2.0**-80)], 0.0, 1.0),
        ([MIDPOINT, 2.0**-280], 2.0**-300, 1.0),
        ([ODD_MIDPOINT, -(2.0**-280)], 2.0**-300, 1 + 2.0**-22),
        ([2.0**-90], 0.0, 2.0**-90),
        ([2.0**-90], 2.0**-120, None),
        ([2.0**-90, -(2.0**-150)], 2.0**-160, 0.0),
        ([-(2.0**-90), 2.0**-150], 2.0**-160, 0.0),
        ([2.0**-90, 2.0**-150], 2.0**-160, 2.0**-90),
        ([2.0**-90, -(2.0**-280)], 2.0**-300, 2.0**-90),
        ([2.0**-91], 2.0**-92, 0.0),
        ([-(2.0**-130)], 2.0**-100, 0.0),
        ([0.0], 2.0**-91, 0.0),
        ([0.0], 2.0**-89, None),
        ([2.0**-1000], 0.0, 0.0),
        ([1.0], 1e300, None),
        ([1.0], float("inf"), None),
        ([1e38], 1e37, None),
        ([0.75], 2.0**-40, 0.75),
        ([1.0], 2.0**-25, None),
        ([1.0], 2.0**-26, 1.0),
        ([3.4028234663852886e38], 1e29, 3.4028234663852886e38),
    ],
)
def test_boundaries(terms: list[float], bound: float, expected: float | None) -> None:
    got = decide(terms, bound)
    assert got == expected
    if expected == 0:
        assert not np.signbit(np.float32(got))


@pytest.mark.parametrize("value", [2.0**128 - 2.0**103, 2.0**128, 1e39, -1e39, 1e200])
def test_a_number_beyond_float32_is_refused(value: float) -> None:
    with pytest.raises(RefusedError, match="exceeds float32"):
        decide([value], 2.0**-300)


def test_a_known_zero_needs_no_bound() -> None:
    head = round_weights(
        [np.array([[0.0, 1.0]])], np.array([1.0, 2.0**-60]), np.array([[True, False]])
    )
    assert head is not None
    assert head.tolist() == [[0.0, 1.0]]
