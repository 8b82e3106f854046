"""Matched non-members: from the same strata, none twice, determined by the seed."""

import hashlib

import numpy as np
import pytest

from workers.errors import RefusedError
from workers.judge.samples.samples import Matching, match, shuffled

SEED = bytes(range(32))
rng = np.random.default_rng(0)
FORGET = (np.repeat(["anna", "bert"], [60, 40]), rng.integers(0, 3, 100))
POOL = (np.repeat(["anna", "bert", "carl"], [120, 80, 50]), rng.integers(0, 3, 250))


def strata(side: tuple[np.ndarray, np.ndarray], rows: np.ndarray) -> list[tuple[str, int]]:
    return [(str(side[0][row]), int(side[1][row])) for row in rows]


def test_pairs_share_client_and_label() -> None:
    found = match(FORGET, POOL, SEED, 0.9)
    assert strata(FORGET, found.forget) == strata(POOL, found.unseen)
    assert len(set(found.forget)) == len(found.forget) >= 90
    assert len(set(found.unseen)) == len(found.unseen)
    assert found.tested == len(found.forget) / 100


def test_the_rest_of_the_pool_is_known_and_never_a_partner() -> None:
    found = match(FORGET, POOL, SEED, 0.9)
    assert sorted([*found.unseen, *found.others]) == list(range(250))
    assert len(found.others) >= 50  # a fifth is reserved, whatever the demand


def test_the_seed_alone_chooses() -> None:
    def rows(found: Matching) -> list[int]:
        return [*found.forget, *found.unseen, *found.others]

    assert rows(match(FORGET, POOL, SEED, 0.8)) == rows(match(FORGET, POOL, SEED, 0.8))
    other = match(FORGET, POOL, SEED[::-1], 0.8)
    assert list(other.unseen) != list(match(FORGET, POOL, SEED, 0.8).unseen)


def test_a_short_pool_tests_a_part_of_the_forget_set_of_its_own_mix() -> None:
    labels = np.repeat([0, 1], [300, 100])
    forget = np.zeros(400), labels
    pool = np.zeros(200), np.repeat([0, 1], [150, 50])
    found = match(forget, pool, SEED, 0.95)
    assert 140 <= len(found.forget) <= 170
    assert (labels[found.forget] == 0).mean() == pytest.approx(0.75, abs=0.05)


@pytest.mark.parametrize(
    "pool",
    [
        (np.repeat("carl", 500), np.zeros(500, dtype=np.int64)),  # other clients
        (np.repeat("anna", 500), np.full(500, 9)),  # other labels
        (np.repeat("bert", 500), np.arange(500) % 3),  # only of the smaller client
        (np.array([], dtype=np.str_), np.array([], dtype=np.int64)),
    ],
)
def test_what_cannot_be_matched_is_refused(pool: tuple[np.ndarray, np.ndarray]) -> None:
    with pytest.raises(RefusedError, match="hold out more"):
        match(FORGET, pool, SEED, 0.8)


def test_an_empty_forget_set_is_refused() -> None:
    empty = np.array([], dtype=np.str_), np.array([], dtype=np.int64)
    with pytest.raises(RefusedError):
        match(empty, POOL, SEED, 0.8)


def test_the_order_is_a_permutation_that_never_changes() -> None:
    assert sorted(shuffled(1000, SEED, b"x")) == list(range(1000))
    stream = hashlib.shake_256(b"lethe/sample/v1\0\0\0\0\4poolseed").digest(8 * 20)
    keys = [int.from_bytes(stream[8 * i : 8 * i + 8], "little") for i in range(20)]
    assert list(shuffled(20, b"seed", b"pool")) == sorted(range(20), key=keys.__getitem__)
    first = [int(shuffled(10, bytes([i]), b"x")[0]) for i in range(250)]
    assert min(np.bincount(first, minlength=10)) > 10
