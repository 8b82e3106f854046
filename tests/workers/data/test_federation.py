from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.data.digits import load_digits
from workers.data.federation import Federation, hold_out, record_ids
from workers.data.partition import dirichlet
from workers.errors import DatasetError


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=200),
    st.integers(1, 40),
    st.sampled_from([0.01, 0.5, 100.0]),
    st.integers(0, 1000),
)
@settings(deadline=None)
def test_a_partition_is_total_repeatable_and_leaves_no_client_empty(
    labels: list[int], clients: int, alpha: float, seed: int
) -> None:
    array = np.array(labels, dtype=np.int64)
    if clients > len(labels):
        with pytest.raises(DatasetError, match="at least one row each"):
            dirichlet(array, clients, alpha, seed)
        return
    owner = dirichlet(array, clients, alpha, seed)
    assert set(owner.tolist()) == set(range(clients))
    assert np.array_equal(owner, dirichlet(array, clients, alpha, seed))


def test_small_alpha_skews_more_than_large() -> None:
    labels = np.repeat(np.arange(10), 500)

    def skew(alpha: float) -> float:
        owner = dirichlet(labels, 20, alpha, 0)
        shares = [np.bincount(labels[owner == k], minlength=10) for k in range(20)]
        return float(np.mean([counts.max() / counts.sum() for counts in shares]))

    assert skew(0.05) > 0.5 > 0.2 > skew(1000.0)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_alpha_is_a_positive_number(alpha: float) -> None:
    with pytest.raises(DatasetError, match="alpha"):
        dirichlet(np.zeros(5, dtype=np.int64), 2, alpha, 0)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=300), st.integers(0, 100))
@settings(deadline=None)
def test_held_out_rows_leave_every_client_one(clients: list[int], seed: int) -> None:
    owners = np.array(clients)
    is_test = hold_out(owners, seed)
    assert set(owners[~is_test].tolist()) == set(clients)
    spare = len(clients) - len(set(clients))
    assert is_test.sum() == min(spare, max(1, len(clients) // 10))
    assert np.array_equal(is_test, hold_out(owners, seed))


def test_digits_are_real_and_dealt_to_every_client() -> None:
    got = load_digits(clients=100)
    assert got.features.shape == (1797, 64)
    assert got.features.max() == 16
    assert got.label_names == tuple("0123456789")
    assert got.is_test.sum() == 179
    assert len(Counter(got.clients[~got.is_test].tolist())) == 100
    assert np.bincount(got.labels).min() > 170
    assert np.array_equal(got.clients, load_digits(clients=100).clients)
    assert not np.array_equal(got.clients, load_digits(clients=100, seed=1).clients)


def parts(**changes: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "features": np.zeros((3, 2), dtype=np.float32),
        "labels": np.array([0, 1, 0]),
        "clients": np.array(["a", "b", "a"]),
        "label_names": ("zero", "one"),
        "is_test": np.array([False, False, True]),
        "records": record_ids(3),
    }
    return {**whole, **changes}


def test_a_whole_federation_is_taken() -> None:
    assert Federation(**parts()).records.tolist() == [f"record-000000{i}" for i in range(3)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.zeros((0, 2), dtype=np.float32)}, "features: "),
        ({"features": np.zeros((3, 2), dtype=np.int64)}, "features: "),
        ({"labels": np.array([0, 2, 0])}, "labels: "),
        ({"labels": np.array([0, -1, 0])}, "labels: "),
        ({"labels": np.array([0, 1, 0], dtype=np.int32)}, "labels: must be int64"),
        ({"records": np.array(["a", "a", "b"])}, "records: an id repeats"),
        ({"records": np.array(["a", "b"])}, "records: .* each row"),
        ({"is_test": np.ones(3, dtype=bool)}, "is_test: "),
    ],
)
def test_odd_federations_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        Federation(**parts(**changes))
