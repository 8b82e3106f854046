"""Samples by rank: uniform, and no other member changes when one leaves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.baselines.sampling import chosen, drawn

NAMES = [f"client {i}" for i in range(12)]


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**62),
    round=st.integers(1, 500),
    count=st.integers(1, 12),
    gone=st.integers(0, 11),
)
def test_without_a_client_only_its_own_place_is_given_away(
    seed: int, round: int, count: int, gone: int
) -> None:
    whole = chosen(NAMES, count, seed, round)
    left = [name for name in NAMES if name != NAMES[gone]]
    after = chosen(reversed(left), count, seed, round)
    assert after == sorted(after)
    assert len(set(whole)) == count
    if NAMES[gone] in whole:
        assert set(whole) - {NAMES[gone]} <= set(after)
        assert len(after) == min(count, 11)
    else:
        assert after == whole


def test_nobody_and_everybody() -> None:
    assert chosen(NAMES, 0, 1, 1) == sorted(NAMES)
    assert chosen(NAMES, 99, 1, 1) == sorted(NAMES)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**62),
    count=st.integers(1, 30),
    gone=st.sets(st.integers(0, 19), max_size=19),
)
def test_without_rows_the_others_are_drawn_as_before(
    seed: int, count: int, gone: set[int]
) -> None:
    whole = np.arange(20)
    first = drawn(whole, count, seed, "rows", 0)
    left = np.setdiff1d(whole, np.array(sorted(gone), dtype=np.int64))
    after = left[drawn(left, count, seed, "rows", 0)]
    kept = set(first.tolist()) - gone
    assert kept <= set(after.tolist())
    assert len(after) == min(count, len(left))
    if not gone & set(first.tolist()):
        assert after.tolist() == first.tolist()


def test_every_client_and_every_row_is_drawn_as_often() -> None:
    rounds, count = 3000, 4
    clients = dict.fromkeys(NAMES, 0)
    rows = np.zeros(12)
    for round in range(rounds):
        for name in chosen(NAMES, count, 7, round):
            clients[name] += 1
        rows[drawn(np.arange(12), count, 7, "rows", round)] += 1
    for found in (np.array(list(clients.values())), rows):
        # Binomial(3000, 1/3): five deviations.
        assert np.abs(found - rounds / 3).max() < 5 * np.sqrt(rounds * 2 / 9)


@pytest.mark.parametrize("other", [(8, 1, "rows"), (7, 2, "rows"), (7, 1, "steps")])
def test_seed_round_and_purpose_change_the_sample(other: tuple[int, int, str]) -> None:
    seed, round, purpose = other
    many = [f"client {i}" for i in range(200)]
    assert chosen(many, 20, seed, round) != chosen(many, 20, 7, 1) or purpose != "rows"
    one, two = (
        drawn(np.arange(200), 20, *of) for of in ((7, "rows", 1), (seed, purpose, round))
    )
    assert one.tolist() != two.tolist()
