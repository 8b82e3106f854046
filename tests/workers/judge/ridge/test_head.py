"""The judge's proof of a head, against rational arithmetic, and its view of ties."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.judge.claims import ridge_claim
from tests.workers.methods.ridge import oracle
from workers.arrays import Rows
from workers.judge.ridge.head import Proven, check_rounded, judge_entries, prove
from workers.judge.ridge.statistics import recompute
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.ridge_exact import METHOD


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 4),
    st.integers(1, 3),
    st.floats(2.0**-20, 2.0**60),
)
@settings(deadline=None)
def test_the_bound_holds_and_is_not_loose(seed: int, d: int, c: int, penalty: float) -> None:
    rng = np.random.default_rng(seed)
    rows = oracle.random_rows(rng, 9, d, c)
    exponents = tuple(int(e) for e in rng.integers(-18, -8, d))
    config = RidgeConfig(d, c, exponents, 16, penalty)
    state = METHOD.refit(config, [rows]).state
    recomputed = recompute([rows], d, c, 16)
    proven = prove(ridge_claim(state, config), recomputed)
    truth = oracle.solve(rows, config)
    assert oracle.squared_distance(state.witness, truth) <= proven.norm() ** 2
    assert proven.norm() <= Fraction(state.bound)
    assert check_rounded(ridge_claim(state, config), recomputed).check.passed
    # With an honest witness of one float64 term the bound must grow, and still hold.
    rough = np.array([[[float(weight) for weight in row] for row in truth]])
    claim = ridge_claim(state, config)
    coarse = prove(
        type(claim)(**{**{f: getattr(claim, f) for f in claim.__slots__}, "witness": rough}),
        recomputed,
    )
    assert oracle.squared_distance(rough, truth) <= coarse.norm() ** 2


@pytest.mark.parametrize("exponents", [(-160, 160), (0, -150), (100, 90)])
def test_steps_far_apart(exponents: tuple[int, int]) -> None:
    rows = oracle.random_rows(np.random.default_rng(0), 9, 2, 2)
    config = RidgeConfig(2, 2, exponents, 16, 0.3)
    state = METHOD.refit(config, [rows]).state
    recomputed = recompute([rows], 2, 2, 16)
    assert check_rounded(ridge_claim(state, config), recomputed).check.passed


def test_a_tie_is_settled_for_the_even_neighbour_only() -> None:
    codes = [[2**14, 0]] * 1024 + [[1, 0], [0, 2]]
    rows = Rows(np.array(codes, dtype=np.int16), np.zeros(len(codes), dtype=np.int64))
    config = RidgeConfig(2, 1, (0, 0), 16, float(2**39 - 1024 * 2**28 - 1))
    state = METHOD.refit(config, [rows]).state
    recomputed = recompute([rows], 2, 1, 16)
    claim = ridge_claim(state, config)
    assert check_rounded(claim, recomputed).check.passed
    head = state.head.copy()
    head[0, 0] = np.nextafter(head[0, 0], np.float32(1))  # the odd neighbour, equally near
    fields = {name: getattr(claim, name) for name in claim.__slots__}
    judged = check_rounded(type(claim)(**{**fields, "head": head}), recomputed)
    assert not judged.check.passed
    assert not judged.undecided


def entry(head: float, weight: Fraction, bound: Fraction) -> str:
    grid = -400
    scale = Fraction(2) ** -grid
    weights, bounds = np.empty((1, 1), dtype=object), np.empty(1, dtype=object)
    assert (weight * scale).denominator == (bound * scale).denominator == 1
    weights[0, 0], bounds[0] = int(weight * scale), int(bound * scale)
    wrong, undecided = judge_entries(
        np.array([[head]], dtype=np.float32), Proven(weights, bounds, grid), np.array([False])
    )
    return "wrong" if wrong[0, 0] else "undecided" if undecided[0, 0] else "right"


ULP = Fraction(1, 2**23)
TINY = Fraction(1, 2**90)
BIG = 2.0**128 - 2.0**104


@pytest.mark.parametrize(
    ("head", "weight", "bound", "verdict"),
    [
        (1.0, Fraction(1), Fraction(0), "right"),
        (1.0, 1 + ULP / 2, Fraction(0), "right"),
        (1.0 + 2.0**-23, 1 + ULP / 2, Fraction(0), "wrong"),
        (1.0 + 2.0**-23, 1 + 3 * ULP / 2, Fraction(0), "wrong"),
        (1.0 + 2.0**-22, 1 + 3 * ULP / 2, Fraction(0), "right"),
        (1.0, 1 + ULP / 2, ULP / 2**40, "undecided"),
        (1.0, 1 + ULP, ULP / 4, "wrong"),
        (1.0, 1 - ULP / 4, Fraction(0), "right"),
        (1.0, 1 - ULP / 4 - ULP / 2**40, Fraction(0), "wrong"),
        (1.0, Fraction(-1), Fraction(0), "wrong"),
        (-1.0, Fraction(-1), Fraction(0), "right"),
        (-1.0, -1 - ULP / 2, Fraction(0), "right"),
        (0.0, Fraction(0), TINY / 2, "right"),
        (0.0, Fraction(0), TINY * 2, "undecided"),
        (-0.0, Fraction(0), Fraction(0), "wrong"),
        (0.0, TINY, Fraction(0), "wrong"),
        (0.0, -TINY / 2, Fraction(0), "right"),
        (2.0**-90, TINY, Fraction(0), "right"),
        (-(2.0**-90), -TINY, Fraction(0), "right"),
        (2.0**-90, TINY - TINY / 2**60, Fraction(0), "wrong"),
        (2.0**-91, TINY / 2, Fraction(0), "wrong"),
        (BIG, Fraction(BIG), Fraction(0), "right"),
        (BIG, Fraction(2) ** 128 - Fraction(2) ** 103, Fraction(0), "wrong"),
        (BIG, Fraction(2) ** 128 - Fraction(2) ** 103 - 1, Fraction(0), "right"),
    ],
)
def test_entries(head: float, weight: Fraction, bound: Fraction, verdict: str) -> None:
    assert entry(head, weight, bound) == verdict
