"""A client answers its own tasks with its own rows, and errors quote nothing of them."""

from pathlib import Path

import numpy as np
import pytest

from lethe_flower.answers import answer, load_rows
from lethe_flower.members import parse_member
from tests.flower.nodes import FIRST, write
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, NETWORK
from workers.errors import DatasetError, RefusedError
from workers.training.fedavg.client.data import data_digest
from workers.training.fedavg.messages import encode_task
from workers.training.fedavg.rounds import make_tasks
from workers.training.networks.weights import initial_weights

SECRET = "anna-4711"


def test_a_node_says_who_it_is_and_what_it_holds(tmp_path: Path) -> None:
    config = write(tmp_path)[FIRST]
    member = parse_member(answer("query", b"", config))
    assert member is not None
    assert (member.client, member.rows) == ("anna", len(CLIENTS["anna"]))
    assert member.digest == data_digest({"anna": CLIENTS["anna"]})


def test_another_clients_task_is_refused(tmp_path: Path) -> None:
    weights = initial_weights(NETWORK, 1)
    (task,) = make_tasks(NETWORK, weights, ["bert"], CONFIG.local, round=1, seed=2)
    with pytest.raises(RefusedError, match="for another client"):
        answer("train", encode_task(task), write(tmp_path)[FIRST])


@pytest.mark.parametrize(
    "config", [{}, {"client": "a"}, {"data": "x"}, {"client": 3, "data": "x"}]
)
def test_a_node_without_a_name_or_rows_says_what_to_set(config: dict[str, object]) -> None:
    with pytest.raises(RefusedError, match="--node-config"):
        answer("query", b"", config)


GOOD = {"inputs": np.ones((3, 4), np.float32), "targets": np.zeros(3, np.int64)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": np.ones((3, 4))}, "inputs: must be of the type float32"),
        ({"targets": np.zeros(3, np.int32)}, "targets: must be of the type int64"),
        ({"targets": np.zeros(2, np.int64)}, "exactly one target"),
        ({"inputs": np.array([SECRET], dtype=object)}, "inputs: missing or unreadable"),
        ({"inputs": np.full((3, 4), np.nan, np.float32)}, "NaN"),
        ({"inputs": None}, "inputs: missing or unreadable"),
    ],
)
def test_rows_that_cannot_be_used_are_named(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    arrays = {k: v for k, v in {**GOOD, **changes}.items() if v is not None}
    path = tmp_path / f"{SECRET}.npz"
    np.savez(path, allow_pickle=True, **arrays)  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match=message) as caught:
        load_rows(path)
    assert SECRET not in str(caught.value)


def test_a_file_that_is_not_there_is_not_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="missing or unreadable") as caught:
        load_rows(tmp_path / f"{SECRET}.npz")
    assert SECRET not in str(caught.value)
