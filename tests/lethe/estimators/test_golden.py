"""Digests of small models: the same on every machine, and changed only with the format."""

from typing import Any

import numpy as np
import pytest

from lethe.estimators import (
    ExactForestClassifier,
    ExactForestRegressor,
    ExactGaussianNB,
    ExactMultinomialNB,
    ExactRidgeClassifier,
    ExactRidgeRegressor,
)

# Multiples of 1/8 by a linear congruence: no library draws them.
NUMBERS = [1]
for _ in range(120 * 5):
    NUMBERS.append(NUMBERS[-1] * 48271 % (2**31 - 1))
ROWS = np.array(NUMBERS[1:], np.int64).reshape(120, 5) // 7 % 64 / 8
EDGES = [[i / 2 + 0.25 for i in range(16)]] * 5
SCORE = ROWS[:, 0] + ROWS[:, 1] * ROWS[:, 2] / 8

GOLDEN: dict[str, tuple[Any, str]] = {
    "forest of classes": (
        ExactForestClassifier(7, edges=EDGES),
        "2f89dff754dbdcd85ac9c734e85a149b34677f5ef4493b286b5051033070d84f",
    ),
    "forest of targets": (
        ExactForestRegressor(7, edges=EDGES),
        "2337997f75cee1daf5d02231649bd6b98c00f7f81688995630f8ea4c8530bd1b",
    ),
    "ridge": (
        ExactRidgeRegressor(0.3),
        "e9cbfbebbdfab5284946f7fcc2218733c57139a4ae6ea2c4fb2aa3aa9eb13100",
    ),
    "ridge of classes": (
        ExactRidgeClassifier(0.3),
        "4567e8ab6bc521677aabd1e23405976acbbcdd652d3480a482c66bb8b01744f4",
    ),
    "Gaussian": (
        ExactGaussianNB(),
        "0902efaf1c1822699b399d2d8f37dad4e5abea64b097d54f7bd7714ec9acc03c",
    ),
    "multinomial": (
        ExactMultinomialNB(),
        "ae284245c5650065cd10f0b8b61f264ee06ecbea88ce126e85d9962314dad61e",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_bytes_are_those_of_every_machine(name: str) -> None:
    model, digest = GOLDEN[name]
    regression = name in ("forest of targets", "ridge")
    answers = SCORE if regression else np.digitize(SCORE, [5, 9])
    model.fit(ROWS, answers).unlearn([3, 77])
    assert model.model_digest() == digest
