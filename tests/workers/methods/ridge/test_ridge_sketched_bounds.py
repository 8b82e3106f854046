"""Theorem A2.1 and its analogues on any problem, against NumPy's own solves."""

from fractions import Fraction
from math import inf

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.fuzz import fuzz
from workers.arrays import Matrix
from workers.methods.ridge.sketch_bounds import (
    least_eigenvalue,
    moment_norm,
    norm_above,
    prior_bound,
    resolvent_bound,
)

D, C = 5, 2
FINE = [-60] * D  # steps whose roundings do not matter here


def symmetric(rng: np.random.Generator, norm: float) -> Matrix:
    noise = rng.normal(size=(D, D))
    noise = noise + noise.T
    scaled: Matrix = noise * norm / np.linalg.norm(noise, 2)
    return scaled


def distance(
    gram: Matrix, error: Matrix, moment: Matrix, penalty: float
) -> tuple[float, float]:
    """Return ‖W̃ - W‖_F and ‖W̃‖_F of G + E and G."""
    identity = penalty * np.eye(D)
    exact = np.linalg.solve(gram + identity, moment)
    moved = np.linalg.solve(gram + error + identity, moment)
    return float(np.linalg.norm(moved - exact)), float(np.linalg.norm(moved))


@given(
    seed=st.integers(0, 2**32 - 1),
    penalty=st.floats(0.01, 100),
    share=st.floats(1e-6, 0.999),
    rank=st.integers(0, D),
)
@fuzz(300)
def test_the_theorem_for_any_error_below_the_penalty(
    seed: int, penalty: float, share: float, rank: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(rank, D)) * 3
    moment = rng.normal(size=(D, C))
    drift = share * penalty
    moved, norm = distance(rows.T @ rows, symmetric(rng, drift), moment, penalty)
    least = least_eigenvalue(-1, 0.0, drift, penalty, FINE)
    size = float(np.linalg.norm(moment))
    slack = 1 + 1e-9  # of the solves above
    assert moved <= resolvent_bound(drift, penalty, norm) * slack
    assert moved <= prior_bound(drift, penalty, least, size) * slack
    # The printed form, (λ - δ in place of one λ): ours is not tighter than what it says.
    printed = drift * size / (penalty * (penalty - drift))
    assert prior_bound(drift, penalty, least, size) == pytest.approx(printed, rel=1e-5)


@given(seed=st.integers(0, 2**32 - 1), penalty=st.floats(0.01, 10), rank=st.integers(1, D))
@fuzz(200)
def test_an_added_sketch_may_neglect_more_than_the_penalty(
    seed: int, penalty: float, rank: int
) -> None:
    rng = np.random.default_rng(seed)
    before, batch = rng.normal(size=(3, D)), rng.normal(size=(8, D)) * 5
    values, vectors = np.linalg.eigh(batch.T @ batch)
    kept = vectors[:, D - rank :] * np.sqrt(values[D - rank :])
    error = kept @ kept.T - batch.T @ batch
    drift = float(np.linalg.norm(error, 2)) * (1 + 1e-12)
    moment = rng.normal(size=(D, C))
    gram = before.T @ before + batch.T @ batch
    moved, norm = distance(gram, error, moment, penalty)
    least = least_eigenvalue(+1, 0.0, drift, penalty, FINE)
    assert least > penalty * (1 - 1e-9)
    assert np.linalg.eigvalsh(gram + error + penalty * np.eye(D))[0] >= least * (1 - 1e-9)
    size = float(np.linalg.norm(moment))
    assert moved <= prior_bound(drift, penalty, least, size) * (1 + 1e-9) + 1e-12
    assert moved <= resolvent_bound(drift, penalty, norm) * (1 + 1e-9) + 1e-12


@given(seed=st.integers(0, 2**32 - 1), share=st.floats(1.01, 5))
@settings(max_examples=100, deadline=None)
def test_a_deleted_sketch_may_not(seed: int, share: float) -> None:
    # Overshooting by more than λ where nothing else holds up the direction: indefinite.
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=D)
    direction /= np.linalg.norm(direction)
    sketch_error = share * np.outer(direction, direction)
    assert np.linalg.eigvalsh(np.eye(D) - sketch_error)[0] < 0
    least = least_eigenvalue(-1, 0.0, share, 1.0, FINE)
    assert least < 0
    assert prior_bound(share, 1.0, least, 1.0) == inf


def test_roundings_of_an_added_sketch_count() -> None:
    # Ten columns with steps of 1: all roundings together are an error of norm 5 at most.
    assert least_eigenvalue(+1, 0.0, 1e9, 6.0, [0] * 10) == pytest.approx(1.0, rel=1e-6)
    assert least_eigenvalue(+1, 0.0, 2.0, 6.0, [0] * 10) == pytest.approx(4.0, rel=1e-6)
    assert least_eigenvalue(+1, 0.5, 1e9, 6.0, [0] * 10) == pytest.approx(0.5, rel=1e-5)
    rounding = np.full((10, 10), 0.5)
    assert np.linalg.norm(rounding, 2) <= 5


def test_no_drift_no_distance() -> None:
    assert prior_bound(0.0, 1.0, 1.0, 1e300) == 0.0
    assert resolvent_bound(0.0, 1.0, 1e300) == 0.0
    assert prior_bound(1e200, 1.0, 1e-100, 1e200) == inf
    assert prior_bound(0.5, 1.0, 0.0, 1.0) == inf


@given(st.integers(0, 2**32 - 1), st.floats(-200, 200))
@settings(max_examples=100, deadline=None)
def test_a_norm_above_is_above(seed: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(4, 3)) * 10**size
    norm = norm_above(matrix)
    assume(np.isfinite(norm))
    square = sum(Fraction(float(x)) ** 2 for x in matrix.ravel())
    assert square <= Fraction(norm) ** 2 <= square * Fraction(1 + 1e-6)
    codes = rng.integers(-100, 101, size=(4, 3))
    steps = [0, 1, -1, 3]
    want = float(np.linalg.norm(np.ldexp(codes.astype(float), np.array(steps)[:, None])))
    assert want <= moment_norm(codes, steps) <= want * (1 + 1e-6)
