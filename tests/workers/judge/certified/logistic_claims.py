"""True claims of an erasure from a softmax head, made by dense Newton steps alone."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from tests.workers.judge.claims import ERASED, N, purge_claim, retained_set_claim
from workers.blas_threads import threads_for
from workers.judge.certified.logistic import LogisticClaim
from workers.judge.certified.logistic_noise import NoiseClaim

Array = np.ndarray

PENALTY, CLASSES, INPUTS = 0.05, 3, 4
KEY, DATA, SIGMA = bytes(range(32)), "ab" * 32, 0.01


def problem(
    seed: int, rows: int = 24, inputs: int = 3, classes: int = 3, scale: float = 1.0
) -> tuple[Array, Array]:
    """Return (features float32, labels) that are not separable."""
    rng = np.random.default_rng(seed)
    features = (scale * rng.normal(size=(rows, inputs))).astype(np.float32)
    return features, rng.integers(classes, size=rows)


def slope(
    flat: Array, features: Array, labels: Array, penalty: float, classes: int
) -> tuple[float, Array]:
    """Return (L, ∇L) by the textbook formulas; θ is (c, 1 + p), the bias first."""
    rows, p, value = _softmax(flat, features, labels, classes)
    gradient = (p - np.eye(classes)[labels]).T @ rows / len(rows)
    return value + penalty / 2 * float(flat @ flat), gradient.ravel() + penalty * flat


def hessian(flat: Array, features: Array, labels: Array, penalty: float, classes: int) -> Array:
    """Return ∇²L."""
    rows, p, _ = _softmax(flat, features, labels, classes)
    inner = p[:, :, None] * np.eye(classes) - p[:, :, None] * p[:, None, :]
    matrix = np.einsum("nab,ni,nj->aibj", inner, rows, rows) / len(rows)
    found: Array = matrix.reshape(len(flat), len(flat)) + penalty * np.eye(len(flat))
    return found


def _softmax(
    flat: Array, features: Array, labels: Array, classes: int
) -> tuple[Array, Array, float]:
    rows = np.column_stack([np.ones(len(features)), features.astype(np.float64)])
    z = rows @ flat.reshape(classes, -1).T
    top = z.max(1, keepdims=True)
    total = np.log(np.exp(z - top).sum(1)) + top[:, 0]
    told = z[np.arange(len(rows)), labels]
    return rows, np.exp(z - total[:, None]), float((total - told).mean())


def optimum(features: Array, labels: Array, penalty: float, classes: int) -> Array:
    """Return θ* (c, 1 + p) float64, by a minimiser of SciPy's and steps that polish it."""
    given = features, labels, penalty, classes
    start = np.zeros(classes * (1 + features.shape[1]))
    with threads_for(1):
        flat = minimize(slope, start, given, jac=True, method="L-BFGS-B").x
        for _ in range(4):
            flat = flat - np.linalg.solve(hessian(flat, *given), slope(flat, *given)[1])
    found: Array = flat.reshape(classes, -1)
    return found


def box_muller(key: bytes, context: str, size: int) -> Array:
    """The noise of the documented construction, one number at a time."""
    from math import cos, log, pi, sin, sqrt

    data = hashlib.shake_256(b"lethe certified noise 1\x00" + key + context.encode()).digest(
        16 * size
    )
    drawn: list[float] = []
    for start in range(0, 8 * size + 8, 16):
        a, b = (int.from_bytes(data[start + s : start + s + 8], "little") >> 11 for s in (0, 8))
        r, turn = sqrt(-2 * log((a + 1) / 2**53)), 2 * pi * b / 2**53
        drawn += [r * cos(turn), r * sin(turn)]
    return np.array(drawn[:size])


ROWS, LABELS = problem(7, N, INPUTS)
STAYS = [row for row in range(N) if row not in ERASED]
RETAINED, KEPT = ROWS[STAYS], LABELS[STAYS]
CENTRE = optimum(RETAINED, KEPT, PENALTY, CLASSES).astype(np.float32)
WITH_ERASED = optimum(ROWS, LABELS, PENALTY, CLASSES).astype(np.float32)


def logistic_claim(theta: Array = CENTRE, **changes: Any) -> LogisticClaim:
    """A true claim of these weights (c, 1 + p), except for the changes."""
    claim = LogisticClaim(
        retained_set=retained_set_claim(),
        purge=purge_claim(),
        published_digest="12" * 32,
        file_digest="12" * 32,
        claimed_data=DATA,
        data=DATA,
        features=RETAINED,
        labels=KEPT,
        bias=theta[:, 0].copy(),
        weight=theta[:, 1:].copy(),
        penalty=PENALTY,
        bound=1e-4,
        tolerance=2.0**-7,
        registration=("34" * 32, "34" * 32),
        rows_before=("56" * 32, "56" * 32),
    )
    return replace(claim, **changes)


def noise_claim(**changes: Any) -> NoiseClaim:
    claim = NoiseClaim(
        sigma=SIGMA,
        epsilon=1.0,
        delta=1e-5,
        centre_bias=CENTRE[:, 0].copy(),
        centre_weight=CENTRE[:, 1:].copy(),
        key=KEY,
        commitment=hashlib.sha256(b"lethe certified noise key 1\x00" + KEY).hexdigest(),
        releases=4,
        before=1,
        ordinal=3,
    )
    return replace(claim, **changes)


def noisy_claim(within: dict[str, Any] | None = None, /, **changes: Any) -> LogisticClaim:
    """A true claim with noise, except for the changes in its noise and in itself."""
    drawn = SIGMA * box_muller(KEY, f"{DATA}|3", CENTRE.size)
    order = np.concatenate([CENTRE[:, 0], CENTRE[:, 1:].ravel()])  # bias, weight
    flat = (order.astype(np.float64) + drawn).astype(np.float32)
    theta = np.column_stack([flat[:CLASSES], flat[CLASSES:].reshape(CLASSES, INPUTS)])
    true = {"bound": 0.125, "tolerance": 0.25, "noise": noise_claim(**(within or {}))}
    return logistic_claim(theta, **{**true, **changes})
