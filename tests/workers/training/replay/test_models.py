"""Models that a judge trains: as registered, on the rows drawn, and scored row by row."""

from typing import Any

import numpy as np
import pytest
import torch

from tests import small_network
from tests.workers.jobs.families.network import networks
from workers.training.fedavg.base import ClientData, ClientUpdate, RoundTask
from workers.training.fedavg.client.respond import respond
from workers.training.fedavg.errors import RoundFailedError
from workers.training.networks.registry import network
from workers.training.replay.models import (
    ScoredRows,
    answers,
    reference_clients,
    scorer,
    train_file,
)

NETWORK = network("logistic", small_network.SHAPE)
ROWS = small_network.rows()


def numbered(*values: int) -> ClientData:
    """Return identifiable rows: each feature is the row's number."""
    inputs = torch.tensor(values, dtype=torch.float32)[:, None].expand(-1, 6).contiguous()
    return ClientData(inputs, torch.tensor([value % 3 for value in values]))


def who(data: ClientData) -> list[int]:
    return [int(value) for value in data.inputs[:, 0]]


RETAINED = {"a": numbered(0, 1), "b": numbered(2, 3)}
# ScoredRows rows are counted over all clients; c has no retained rows.
TESTED = {
    "a": ScoredRows(numbered(10, 12), np.array([0, 2])),
    "c": ScoredRows(numbered(11, 13), np.array([1, 3])),
}


def test_it_is_trained_on_all_retained_rows_and_on_those_that_were_drawn() -> None:
    def trained(*included: bool) -> dict[str, list[int]]:
        clients = reference_clients(RETAINED, TESTED, np.array(included))
        return {client: who(data) for client, data in clients.items()}

    assert trained(True, False, False, True) == {"a": [0, 1, 10], "b": [2, 3], "c": [13]}
    assert trained(False, False, True, False) == {"a": [0, 1, 12], "b": [2, 3]}
    only = reference_clients({}, TESTED, np.array([False, True, True, True]))
    assert {client: who(data) for client, data in only.items()} == {"a": [12], "c": [11, 13]}


def test_the_training_is_the_registered_one() -> None:
    config, clients, _ = networks.federated(ROWS, {"r1", "r5"})
    file, flops = train_file(NETWORK, clients, config)
    assert file == networks.retrained(ROWS, {"r1", "r5"})
    # Twice the rows of each client are twice the operations.
    twice = {name: ClientData(data.inputs.repeat(2, 1), data.targets.repeat(2))
             for name, data in clients.items()}  # fmt: skip
    assert train_file(NETWORK, twice, config)[1] == 2 * flops
    assert train_file(NETWORK, {}, config) == (networks.retrained(ROWS, set(), 0), 0)


def test_a_client_that_cannot_be_trained_on_is_not_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, clients, _ = networks.federated(ROWS, set())
    honest, first = respond, min(clients)

    def out_of_memory(task: RoundTask, *more: Any) -> ClientUpdate:
        if (task.client, task.round) == (first, 2):
            raise torch.OutOfMemoryError("planted")
        return honest(task, *more)

    monkeypatch.setattr("workers.training.fedavg.in_process.respond", out_of_memory)
    with pytest.raises(RoundFailedError, match="round 2: a client did not answer"):
        train_file(NETWORK, clients, config)


def test_answers_are_in_the_order_of_the_tested_rows() -> None:
    file = networks.retrained(ROWS, set())
    found = answers(file, NETWORK, TESTED)
    wanted = scorer(file, NETWORK)(numbered(10, 11, 12, 13))
    assert np.allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert len(np.unique(found[:, 0])) == 4
