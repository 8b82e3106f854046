"""The constants of multinomial cross-entropy, against finite differences and dense steps."""

from math import sqrt

import numpy as np
import pytest

from workers.methods.certified.softmax import (
    CURVATURE,
    SLOPE,
    TWIST,
    hessian_lipschitz,
    newton_residual,
)

Array = np.ndarray


def softmax(z: Array) -> Array:
    powers = np.exp(z - z.max(-1, keepdims=True))
    total: Array = powers / powers.sum(-1, keepdims=True)
    return total


def rows_of(rng: np.random.Generator, n: int, p: int, norm: float) -> Array:
    """Rows (1, x) of exactly this length."""
    x = rng.normal(size=(n, p))
    x *= sqrt(norm**2 - 1) / np.linalg.norm(x, axis=1, keepdims=True)
    return np.column_stack([np.ones(n), x])


def gradient(theta: Array, rows: Array, labels: Array, penalty: float = 0.0) -> Array:
    p = softmax(rows @ theta.T)
    p[np.arange(len(rows)), labels] -= 1
    found: Array = (p.T @ rows / len(rows) + penalty * theta).ravel()
    return found


def hessian(theta: Array, rows: Array, labels: Array, penalty: float = 0.0) -> Array:
    """By central differences of the gradient, without the formula for the Hessian."""
    columns, h = [], 1e-5
    for k in range(theta.size):
        step = np.zeros(theta.size)
        step[k] = h
        up, down = (theta + s * step.reshape(theta.shape) for s in (1, -1))
        columns.append(
            (gradient(up, rows, labels, penalty) - gradient(down, rows, labels, penalty))
            / (2 * h)
        )
    return np.array(columns)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_the_hessian_turns_and_bends_no_faster_than_proven(classes: int) -> None:
    rng = np.random.default_rng(classes)
    turned, bent = [], []
    for _ in range(40):
        norm = float(rng.uniform(1.1, 3))
        rows = rows_of(rng, int(rng.integers(1, 3)), 2, norm)
        labels = rng.integers(classes, size=len(rows))
        theta = rng.normal(size=(classes, 3)) * rng.uniform(0.1, 2)
        move = rng.normal(size=theta.shape)
        move *= 0.05 / np.linalg.norm(move)
        one, other = (hessian(t, rows, labels) for t in (theta, theta + move))
        bent.append(np.linalg.norm(one, 2) / (CURVATURE * norm**2))
        turned.append(np.linalg.norm(other - one, 2) / 0.05 / hessian_lipschitz(norm))
        slope = np.linalg.norm(gradient(theta, rows[:1], labels[:1]))
        assert slope <= SLOPE * norm
    assert max(bent) <= 1 + 1e-6
    assert max(turned) <= 1 + 1e-4  # finite differences are that good
    assert max(bent) > 0.5
    assert max(turned) > 0.25


def test_the_constants_are_attained() -> None:
    # Two classes, margin t: σ'' of the logistic function is largest at t = ln(2 + √3).
    odds = 2 + sqrt(3)
    p = odds / (1 + odds)
    v = np.array([1.0, -1.0]) / sqrt(2)
    mean = p * v[0] + (1 - p) * v[1]
    third = p * (v[0] - mean) ** 3 + (1 - p) * (v[1] - mean) ** 3
    assert abs(third) == pytest.approx(TWIST, rel=1e-12)
    # And even odds: a variance of a quarter of the squared gap.
    assert (v[0] - v[1]) ** 2 / 4 == pytest.approx(CURVATURE)


def test_no_law_of_values_within_the_range_has_a_larger_third_moment() -> None:
    rng = np.random.default_rng(1)
    for _ in range(2000):
        v = rng.normal(size=4)
        v /= np.linalg.norm(v)
        p = rng.dirichlet(np.full(4, 0.3))
        centred = v - p @ v
        assert abs(p @ centred**3) <= TWIST
        assert p @ centred**2 <= CURVATURE


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_the_residual_of_a_newton_step_is_at_most_what_was_predicted(share: float) -> None:
    rng = np.random.default_rng(2)
    tight = []
    for _ in range(25):
        norm, penalty = 1.5, 0.05
        rows, labels = rows_of(rng, 12, 2, norm), rng.integers(3, size=12)
        theta = rng.normal(size=(3, 3)) * 0.3
        at = gradient(theta, rows, labels, penalty)
        matrix = hessian(theta, rows, labels, penalty)
        step = -np.linalg.solve(matrix, at + 0.01 * rng.normal(size=9))
        left = float(np.linalg.norm(matrix @ step + at))
        there = gradient(theta + share * step.reshape(3, 3), rows, labels, penalty)
        found = float(np.linalg.norm(there))
        bound = newton_residual(
            norm, float(np.linalg.norm(at)), float(np.linalg.norm(step)), left, share
        )
        assert found <= bound
        tight.append(found / bound)
    assert max(tight) > 0.02
