"""Which rows each model is trained on: exactly half of the models per row, by seed and row."""

import hashlib

import numpy as np
import pytest

from workers.judge.samples.samples import halves

SEED = bytes(range(32))
ROWS = [hashlib.sha256(str(row).encode()).digest() for row in range(400)]


@pytest.mark.parametrize("models", [4, 5, 16])
def test_each_row_is_in_exactly_half_of_the_models(models: int) -> None:
    included = halves(SEED, models, ROWS)
    assert included.shape == (models, len(ROWS))
    assert included.dtype == np.bool_
    assert set(included.sum(axis=0).tolist()) == {models // 2}


def test_a_row_by_hand() -> None:
    # SHAKE-256 of label, length of the seed, seed and digest; the least numbers are in.
    data = b"lethe/references/v1\0" + (32).to_bytes(4, "big") + SEED + ROWS[7]
    stream = hashlib.shake_256(data).digest(32)
    numbers = [int.from_bytes(stream[8 * m : 8 * m + 8], "little") for m in range(4)]
    least = sorted(range(4), key=numbers.__getitem__)[:2]
    assert np.flatnonzero(halves(SEED, 4, ROWS)[:, 7]).tolist() == sorted(least)


def test_models_are_alike_and_rows_independent() -> None:
    included = halves(SEED, 8, ROWS)
    # A model has half of the rows, two models a share of 3/14 of them: binomials of 400.
    assert np.abs(included.sum(axis=1) - 200).max() < 5 * 10
    both = included.astype(int) @ included.T.astype(int)
    assert np.abs(both[np.triu_indices(8, 1)] - 400 * 3 / 14).max() < 5 * 8.2


def test_the_draw_is_of_the_seed_and_of_the_row_and_not_of_its_place() -> None:
    included = halves(SEED, 8, ROWS)
    assert (halves(SEED, 8, ROWS[::-1]) == included[:, ::-1]).all()
    assert (halves(SEED[::-1], 8, ROWS) != included).any()
    assert halves(SEED, 8, []).shape == (8, 0)
