"""Clients that break, lie or vanish: dropped by name, the round is that of the others."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.workers.training.fedavg.small import (
    CLIENTS,
    CONFIG,
    NETWORK,
    ROWS,
    Change,
    Meddling,
    spoiled,
)
from workers.training.fedavg.base import ClientData, Fault
from workers.training.fedavg.config import TrainingConfig
from workers.training.fedavg.errors import RoundFailedError
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import run_round, train
from workers.training.fedavg.server import initial_state
from workers.training.networks.weights import initial_weights


def shaped(**tensors: torch.Tensor) -> Change:
    parts = {name.replace("_", "."): tensor for name, tensor in tensors.items()}
    return lambda update: replace(update, delta={**update.delta, **parts})


def said(**fields: Any) -> Change:
    return lambda update: replace(update, **fields)


FAULTS: list[tuple[str, Change, str]] = [
    ("NaN", spoiled(float("nan")), "not-finite"),
    ("infinity", spoiled(float("-inf")), "not-finite"),
    ("NaN loss", said(loss=float("nan")), "not-finite"),
    ("enormous", spoiled(1e6), "norm"),
    ("enormous enough to overflow a square", spoiled(3e38), "norm"),
    ("a longer bias", shaped(head_bias=torch.zeros(4)), "shape"),
    ("a column", shaped(head_bias=torch.zeros(3, 1)), "shape"),
    ("float64", shaped(head_bias=torch.zeros(3, dtype=torch.float64)), "shape"),
    ("a foreign tensor", shaped(backdoor=torch.zeros(1)), "shape"),
    ("no tensors", said(delta={}), "shape"),
    ("another client", said(client="anna"), "mismatch"),
    ("another round", said(round=2), "mismatch"),
    ("another base", said(base="0" * 64), "mismatch"),
    ("a million rows", said(samples=10**6), "mismatch"),
    ("no rows", said(samples=0), "mismatch"),
    ("no steps", said(steps=0), "mismatch"),
    ("silence", lambda update: None, "no-answer"),
    ("an error", lambda update: Fault(update.client, "client-error", "MemoryError"), "client-error"),
]  # fmt: skip

BOUNDED = replace(CONFIG, max_norm=100.0)


def one_round(engine: Any, clients: dict[str, int], config: TrainingConfig = BOUNDED) -> Any:
    state = initial_state(initial_weights(NETWORK, config.seed), config.server)
    return run_round(NETWORK, state, clients, config, engine, 1)


@pytest.mark.parametrize(("what", "change", "reason"), FAULTS, ids=[f[0] for f in FAULTS])
def test_one_broken_client_is_dropped(what: str, change: Change, reason: str) -> None:
    state, record = one_round(Meddling({"bert": change}), ROWS)
    assert [(fault.client, fault.reason) for fault in record.faults] == [("bert", reason)]
    others = {client: rows for client, rows in ROWS.items() if client != "bert"}
    alone, _ = one_round(InProcess(CLIENTS), others)
    for name, weight in alone.weights.items():
        assert torch.equal(state.weights[name], weight)


@pytest.mark.parametrize(("what", "change", "reason"), FAULTS, ids=[f[0] for f in FAULTS])
def test_too_few_left_fail_the_round_by_name(what: str, change: Change, reason: str) -> None:
    config = replace(BOUNDED, min_clients=2)
    both: dict[str, Change] = {"bert": change, "cleo": lambda update: None}
    with pytest.raises(RoundFailedError, match=f"1 of 3 .*{reason}.* 2 are needed") as caught:
        one_round(Meddling(both), ROWS, config)
    assert "bert" not in str(caught.value)  # a message names no client


def test_nobody_answers() -> None:
    silent: dict[str, Change] = dict.fromkeys(ROWS, lambda update: None)
    with pytest.raises(RoundFailedError, match="0 of 3"):
        one_round(Meddling(silent), ROWS)


def test_training_goes_on_without_a_client_and_with_it_again() -> None:
    engine = Meddling({"bert": lambda update: None}, rounds=(2, 3))
    trained = train(NETWORK, ROWS, BOUNDED, engine)
    faulty = [record.round for record in trained.records if record.faults]
    assert faulty == [2, 3]
    saved: list[bytes] = []
    engine = Meddling({"bert": lambda update: None}, rounds=(2, 3))
    train(NETWORK, ROWS, BOUNDED, engine, save=saved.append)
    # What was dropped is part of the record, and of a resumed training's record.
    resumed = train(NETWORK, ROWS, BOUNDED, engine, resume=saved[2])
    assert resumed.records == trained.records


def test_an_update_as_long_as_the_bound_counts_and_a_longer_one_does_not() -> None:
    """Also where √d times its largest entry says nothing: the length itself is compared."""
    start = initial_weights(NETWORK, CONFIG.seed)
    entries = sum(part.numel() for part in start.values())
    even = {name: torch.ones_like(part) for name, part in start.items()}  # √d long
    spike = {name: torch.zeros_like(part) for name, part in start.items()}
    spike["head.bias"][0] = 2.0
    for delta, length in ((even, entries**0.5), (spike, 2.0)):
        engine = Meddling({"bert": said(delta=delta)})
        for factor, dropped in ((1.01, []), (0.99, ["bert"])):
            config = replace(CONFIG, max_norm=factor * length)
            _, record = one_round(engine, ROWS, config)
            assert [
                fault.client for fault in record.faults if fault.client == "bert"
            ] == dropped


def test_without_a_bound_only_an_enormous_update_is_dropped() -> None:
    free = replace(CONFIG, max_norm=0.0)
    state, record = one_round(Meddling({"bert": spoiled(1e5)}), ROWS, free)
    assert not record.faults  # far too long, and whoever minds registers a bound
    assert float(state.weights["head.bias"].abs().max()) > 1e4
    _, record = one_round(Meddling({"bert": spoiled(1e12)}), ROWS, free)
    assert [(fault.client, fault.reason) for fault in record.faults] == [("bert", "norm")]
    with pytest.raises(RoundFailedError, match="norm"):
        one_round(Meddling(dict.fromkeys(ROWS, spoiled(3e38))), ROWS, free)


def test_a_client_whose_rows_do_not_fit_fails_alone() -> None:
    clients = {**CLIENTS, "bert": ClientData(torch.zeros(12, 9), torch.zeros(12).long())}
    _, record = one_round(InProcess(clients), ROWS)
    assert record.faults == (Fault("bert", "client-error", "RefusedError"),)


def test_a_client_that_is_gone_has_no_answer() -> None:
    clients = {name: data for name, data in CLIENTS.items() if name != "bert"}
    _, record = one_round(InProcess(clients), ROWS)
    assert record.faults == (Fault("bert", "no-answer", "unknown here"),)


def test_a_client_that_diverges_is_dropped() -> None:
    wild = replace(CONFIG, local=replace(CONFIG.local, learning_rate=1e6, epochs=40))
    huge = {
        name: ClientData(data.inputs * (1e30 if name == "cleo" else 1e-9), data.targets)
        for name, data in CLIENTS.items()
    }
    _, record = one_round(InProcess(huge), ROWS, wild)
    assert [(fault.client, fault.reason) for fault in record.faults] == [("cleo", "not-finite")]
