"""Each kind of sketch: its own guarantee, and a residual that always holds."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.methods.ridge.sketches import oracle
from workers.arrays import Codes, IntMatrix, Matrix
from workers.errors import ExactnessError, RefusedError
from workers.methods.ridge.sketches import kinds
from workers.methods.ridge.sketches.kinds import (
    known,
    measured_residual,
    random_directions,
    sketch,
)
from workers.methods.ridge.sketches.sketch import expand

KINDS = known()
every = pytest.mark.parametrize("kind", KINDS)
ROWS = [True, False]
held = pytest.mark.parametrize("rows", ROWS, ids=["from rows", "from the Gram matrix"])
LIMITS = 2.0**-24  # rounding entries to 32 bits, relative to ‖G‖ at these sizes


def made(
    codes: Codes, rank: int, kind: str, rows: bool, **options: Any
) -> tuple[Matrix, float]:
    """Return G - expand(S), as float64, and the claimed residual."""
    gram = oracle.gram(codes)
    small = sketch(gram, rank, kind, codes=codes if rows else None, **options)
    assert small.rank <= rank
    assert small.kind == kind
    return (gram - expand(small.factor, small.shift)).astype(float), small.residual


def spectrum(codes: Codes) -> Matrix:
    return np.linalg.svd(codes.astype(float), compute_uv=False) ** 2


@every
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(0, 7),
    rank=st.integers(1, 5),
    rows=st.booleans(),
    largest=st.sampled_from([1, 50, 32767]),
    steps=st.lists(st.integers(-9, 9), min_size=4, max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_no_error_exceeds_the_residual(
    kind: str, seed: int, n: int, rank: int, rows: bool, largest: int, steps: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(-largest, largest + 1, size=(n, 4)).astype(np.int16)
    gram = oracle.gram(codes)
    small = sketch(gram, rank, kind, codes=codes if rows else None, exponents=steps)
    error = gram - expand(small.factor, small.shift)
    assert oracle.norm_is_at_most(error, steps, small.residual)
    assert (small.residual == 0) == (not error.any())
    if n <= rank:
        wide = np.ldexp(gram.astype(float), steps)
        assert small.residual <= LIMITS * np.abs(np.ldexp(wide, np.array(steps)[:, None])).sum()


@every
@held
def test_a_batch_of_no_more_rows_than_the_rank_is_exact_up_to_rounding(
    kind: str, rows: bool
) -> None:
    codes = oracle.decaying_codes(1, 12, 40)
    error, residual = made(codes, 12, kind, rows)
    assert np.abs(error).max() < 100  # of 10^9
    assert residual <= 2.0**-28 * spectrum(codes)[0]
    one, residual = made(codes[:1], 12, kind, rows)
    assert residual <= 2.0**-28 * spectrum(codes[:1])[0]
    assert np.abs(one).max() <= 16


@held
def test_eigen_neglects_what_the_best_must(rows: bool) -> None:
    codes = oracle.decaying_codes(2, 35, 40)
    error, residual = made(codes, 10, "eigen", rows)
    best = spectrum(codes)[10]
    assert np.linalg.norm(error, 2) == pytest.approx(best, rel=1e-6)
    assert best * (1 - 1e-6) <= residual <= best * 40 ** (1 / 32) * 1.001


@held
@pytest.mark.parametrize("n", [11, 20, 21, 200])
def test_frequent_directions_keep_their_promise(n: int, rows: bool) -> None:
    codes = oracle.decaying_codes(3, n, 40)
    error, residual = made(codes, 10, "frequent-directions", rows)
    values = spectrum(codes)
    promise = min(values[p:].sum() / (11 - p) for p in range(11))
    assert np.linalg.norm(error, 2) <= promise + LIMITS * values[0]
    assert residual <= promise * 1.2
    # Never above G: deleting a sketch of rows cannot take more than the rows.
    assert np.linalg.eigvalsh(error)[0] >= -LIMITS * values[0]


def test_a_projection_follows_its_seed_and_never_exceeds_what_it_saw() -> None:
    codes = oracle.decaying_codes(4, 90, 40)
    values = spectrum(codes)
    errors = [made(codes, 16, "random-projection", True, seed=seed) for seed in (0, 0, 1)]
    assert errors[0][1] == errors[1][1] != errors[2][1]
    for error, residual in errors:
        assert np.linalg.eigvalsh(error)[0] >= -LIMITS * values[0]
        assert values[16] * (1 - 1e-6) <= residual <= 10 * values[8:].sum()
    with pytest.raises(RefusedError, match="seed 0 or more"):
        made(codes, 16, "random-projection", True, seed=-1)


def test_directions_are_these_for_ever() -> None:
    many = random_directions(100, 100, 5)
    assert abs(many.mean()) < 0.05
    assert np.square(many).mean() == pytest.approx(1 / 3, rel=0.05)
    assert np.abs(many).min() > 0
    assert np.abs(many).max() < 1
    few = random_directions(2, 2, 0) * 2**16
    assert few.tolist() == [[61359, 65331], [-62935, 35213]]  # by hashlib alone


def test_steps_decide_what_matters() -> None:
    # The second column counts for a thousand times the first in features.
    codes = np.array([[30000, 0], [0, 3000]], dtype=np.int16)
    gram = oracle.gram(codes)
    plain, weighted = sketch(gram, 1), sketch(gram, 1, exponents=[-10, 0])
    assert np.allclose(np.abs(plain.factor) / 2.0**plain.shift, [[30000, 0]], atol=1e-3)
    assert np.allclose(np.abs(weighted.factor) / 2.0**weighted.shift, [[0, 3000]], atol=1e-3)
    assert plain.residual == pytest.approx(3000**2, rel=1e-5)
    assert weighted.residual == pytest.approx(30000**2 / 2**20, rel=1e-3)


@every
def test_more_bits_leave_less_to_rounding(kind: str) -> None:
    codes = oracle.decaying_codes(5, 8, 20)
    coarse, fine = (made(codes, 8, kind, False, bits=bits)[1] for bits in (16, 45))
    assert fine <= coarse / 1000


GARBAGE = {
    "zeros": lambda g, x, r, s: np.zeros((r, len(g))),
    "noise": lambda g, x, r, s: np.random.default_rng(0).normal(size=(r, len(g))) * 1e9,
    "one row": lambda g, x, r, s: np.ones((1, len(g))) * 1e4,
}


@pytest.mark.parametrize("how", GARBAGE)
def test_a_solver_that_lies_is_found_out_by_the_residual(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = oracle.decaying_codes(6, 9, 6)
    monkeypatch.setitem(kinds.FACTORS, "eigen", GARBAGE[how])
    gram = oracle.gram(codes)
    small = sketch(gram, 2)
    assert oracle.norm_is_at_most(
        gram - expand(small.factor, small.shift), [0] * 6, small.residual
    )
    assert small.residual > np.linalg.norm(gram.astype(float), 2) / 3


def test_a_residual_notices_one_unit() -> None:
    codes = np.array([[100, -7], [3, 9]], dtype=np.int16)
    gram, factor = oracle.gram(codes), codes.astype(np.int64)
    assert measured_residual(gram, factor, 0) == 0.0
    gram[1, 1] += 1
    assert 1 <= measured_residual(gram, factor, 0) < 1.001


SQUARE = np.eye(3, dtype=np.int64)
ASYMMETRIC = SQUARE.copy()
ASYMMETRIC[0, 1] = 1


@pytest.mark.parametrize(
    ("gram", "options", "error", "words"),
    [
        (SQUARE, {"kind": "secret"}, RefusedError, "unknown sketch: choose one of eigen, freq"),
        (SQUARE, {"rank": 0}, RefusedError, "rank must be at least 1"),
        (SQUARE * 1.0, {}, RefusedError, "symmetric int64"),
        (SQUARE[:2], {}, RefusedError, "symmetric int64"),
        (ASYMMETRIC, {}, RefusedError, "symmetric int64"),
        (SQUARE * 2**62, {}, ExactnessError, "send smaller ones"),
        (SQUARE, {"codes": np.ones((1, 2), np.int16)}, RefusedError, "number of columns"),
        (SQUARE, {"bits": 99}, RefusedError, "99 bits"),
    ],
)
def test_bad_input_is_refused(
    gram: IntMatrix, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as refusal:
        sketch(gram, **{"rank": 2, **options})
    assert "secret" not in str(refusal.value)
