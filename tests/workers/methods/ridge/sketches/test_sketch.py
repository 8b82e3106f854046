"""The expansion of a sketch against Python's integers, in every layout and thread count."""

from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from tests.fuzz import fuzz
from tests.workers.methods.ridge.sketches import oracle
from workers.arrays import IntMatrix
from workers.errors import ExactnessError, RefusedError
from workers.methods.ridge.sketches.sketch import MAX_SHIFT, Sketch, expand, to_integers


@given(data=st.data(), rows=st.integers(0, 6), d=st.integers(1, 5), shift=st.integers(0, 48))
@fuzz(200)
def test_it_is_the_integer_formula(data: st.DataObject, rows: int, d: int, shift: int) -> None:
    widest = min(53, 29 + shift)
    width = data.draw(st.integers(0, widest))
    entry = st.integers(-(2**width), 2**width)
    factor = data.draw(
        st.lists(st.lists(entry, min_size=d, max_size=d), min_size=rows, max_size=rows)
    )
    array = np.array(factor, dtype=np.int64).reshape(rows, d)
    assert expand(array, shift).tolist() == oracle.expand(factor, shift, d)


@pytest.mark.parametrize("shift", [0, 1, 13, 24, 27, 48])
@pytest.mark.parametrize("rows", [1, 2, 3, 64, 65, 300])
def test_the_widest_entries_lose_no_bit(rows: int, shift: int) -> None:
    rng = np.random.default_rng(rows)
    largest = min(2**53, int(2.0 ** (30 + shift) / rows**0.5))
    array = rng.choice([-largest, largest - 1, largest], size=(rows, 3)).astype(np.int64)
    assert expand(array, shift).tolist() == oracle.expand(array.tolist(), shift, 3)


def example(rows: int = 40, d: int = 30, bits: int = 30) -> IntMatrix:
    rng = np.random.default_rng(7)
    return rng.integers(-(2**bits), 2**bits, size=(rows, d))


def test_it_depends_on_no_layout_and_no_threads() -> None:
    factor = example(200, 120)
    want = expand(factor, 20)
    for threads in (1, 2):
        with threadpool_limits(threads):
            assert np.array_equal(expand(np.asfortranarray(factor), 20), want)
            # SᵀS is a sum over rows, in any order.
            assert np.array_equal(expand(factor[::-1], 20), want)
    assert np.array_equal(want, want.T)


def test_the_integers_are_these() -> None:
    # Random bits by a formula, which another machine must reproduce.
    factor = np.array(
        [[pow(3, 7 * i + j + 1, 2**31 - 1) - 2**30 for j in range(7)] for i in range(5)]
    )
    digest = sha256(expand(factor, 11).astype("<i8").tobytes()).hexdigest()
    want = np.array(oracle.expand(factor.tolist(), 11, 7), dtype="<i8")
    assert digest == sha256(want.tobytes()).hexdigest()
    assert digest.startswith("164d812d8ac26d76")


@pytest.mark.parametrize(
    ("factor", "shift", "error", "words"),
    [
        (np.ones((2, 2)), 0, RefusedError, "int64 matrix"),
        (np.ones(2, dtype=np.int64), 0, RefusedError, "int64 matrix"),
        (np.ones((2, 2), dtype=np.int64), -1, RefusedError, "shift of 0 to 48"),
        (np.ones((2, 2), dtype=np.int64), MAX_SHIFT + 1, RefusedError, "shift of 0 to 48"),
        (np.full((1, 1), 2**31), 0, ExactnessError, "smaller batches"),
        (np.full((9, 1), 2**30), 0, ExactnessError, "smaller batches"),
        (np.full((1, 1), 2**53 + 1), 40, ExactnessError, "exceeds 53 bits"),
        (np.full((1, 1), -(2**63)), 40, ExactnessError, "exceeds 53 bits"),
    ],
)
def test_what_is_no_sketch_is_refused(
    factor: IntMatrix, shift: int, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        expand(factor, shift)


def test_integers_of_a_factor_have_one_spelling() -> None:
    codes = np.array([[3.0, -32767.0], [0.0, 0.0], [8.0, 1.0]])
    integers, shift = to_integers(codes, 32)
    assert (integers.tolist(), shift) == ([[3, -32767], [8, 1]], 0)
    integers, shift = to_integers(np.array([[0.75, 1.5]]), 32)
    assert (integers.tolist(), shift) == ([[3, 6]], 2)
    assert to_integers(np.zeros((2, 3)), 32)[0].shape == (0, 3)


@given(st.integers(0, 2**32 - 1), st.integers(8, 53), st.floats(-30, 30))
@settings(max_examples=60, deadline=None)
def test_an_entry_fits_its_bits(seed: int, bits: int, size: float) -> None:
    factor = np.random.default_rng(seed).normal(size=(3, 4)) * 2.0**size
    integers, shift = to_integers(factor, bits)
    if shift:  # else it is as wide as the numbers are
        assert np.abs(integers).max(initial=0) < 2 ** (bits - 1)
    rounded = np.ldexp(factor, shift)
    kept = np.rint(rounded)[np.rint(rounded).any(axis=1)]
    assert np.allclose(integers, kept, rtol=0, atol=0.5)


@pytest.mark.parametrize(
    ("factor", "bits", "words"),
    [
        (np.ones((1, 1)), 7, "choose 8 to 53"),
        (np.ones((1, 1)), 54, "choose 8 to 53"),
        (np.array([[np.nan]]), 32, "not a number"),
        (np.array([[np.inf]]), 32, "not a number"),
    ],
)
def test_no_integers_of_it(factor: np.ndarray, bits: int, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        to_integers(factor, bits)


@pytest.mark.parametrize(
    ("largest", "width"),
    [(127, 1), (128, 2), (32767, 2), (-32768, 4), (2**31 - 1, 4), (2**31, 8)],
)
def test_bytes_of_a_payload(largest: int, width: int) -> None:
    small = Sketch(np.full((2, 3), largest), 0, 0.0, "eigen")
    assert (small.payload_bytes, small.rank) == (6 * width, 2)
    with pytest.raises(ValueError, match="read-only"):
        small.factor[0, 0] = 1
