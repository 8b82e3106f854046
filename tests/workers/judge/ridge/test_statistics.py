"""The judge's own recomputation, against Python integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.methods.ridge.oracle import only, python_gram, random_rows
from workers.arrays import Rows
from workers.judge.ridge.statistics import CHUNK, recompute


@given(st.integers(1, 30), st.integers(1, 6), st.integers(1, 4), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_equals_sums_of_python_integers(n: int, d: int, c: int, seed: int) -> None:
    rows = random_rows(np.random.default_rng(seed), n, d, c)
    blocks = [only(rows, range(start, n, 3)) for start in range(3)]
    got = recompute(blocks, d, c, 16)
    gram, moment = python_gram(rows.codes, rows.labels, c)
    assert got.gram.tolist() == gram
    assert got.moment.tolist() == moment
    assert got.rows == n


@pytest.mark.parametrize("code", [32639, 32767, -32767, 32640, -32640, 127, -128, 128, 32512])
def test_a_whole_chunk_of_extreme_codes_stays_exact(code: int) -> None:
    # An odd number of odd products beyond 2^24 would lose its last bit in float32.
    n = CHUNK + 4095
    codes = np.full((n, 2), code, dtype=np.int16)
    codes[:, 1] = -codes[:, 0]
    got = recompute([Rows(codes, np.zeros(n, dtype=np.int64))], 2, 1, 16)
    assert got.gram.tolist() == [
        [n * code**2, -n * code**2],
        [-n * code**2, n * code**2],
    ]
    assert got.moment.tolist() == [[n * code], [-n * code]]
