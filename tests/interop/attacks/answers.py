"""Answers of invented models, of which some know the true class of some rows better."""

import numpy as np

from workers.judge.attacks.outputs import Outputs

CLASSES = 5
Flags = np.ndarray[tuple[int, int], np.dtype[np.bool_]]


def side(rng: np.random.Generator, rows: int, gain: float) -> Outputs:
    """Return answers to rows of which the true class is known better by `gain`."""
    labels = rng.integers(0, CLASSES, rows)
    return Outputs(_logits(rng, labels, np.full(rows, gain)), labels)


def references(
    rng: np.random.Generator, labels: np.ndarray, included: Flags, gain: float
) -> list[Outputs]:
    """Return the answers of m models to n rows; included (m, n): which learned which."""
    return [Outputs(_logits(rng, labels, gain * row), labels) for row in included]


def halves(rng: np.random.Generator, models: int, rows: int) -> Flags:
    """Return included (m, n): each row is in exactly half of an even number of models."""
    half = np.repeat([[True], [False]], models // 2, axis=0)
    return rng.permuted(np.repeat(half, rows, axis=1), axis=0)


def _logits(rng: np.random.Generator, labels: np.ndarray, gain: np.ndarray) -> np.ndarray:
    known = rng.normal(1.5, 1, (len(labels), 1)) + gain[:, None]
    found: np.ndarray = (
        rng.normal(size=(len(labels), CLASSES)) + np.eye(CLASSES)[labels] * known
    )
    return found
