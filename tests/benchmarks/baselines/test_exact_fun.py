"""Exact-Fun against the oracle: a quantised training that the target never joined."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from benchmarks.baselines.exact_fun import ExactFun, Quantised, quantise
from benchmarks.baselines.history import PastRound, RecordedCase, with_rounds
from tests.workers.methods.network.small import Silent, equal
from tests.workers.training.fedavg.small import CONFIG, NETWORK, client_data
from workers.errors import RefusedError
from workers.methods.network.base import (
    Hooks,
    Side,
    UnlearningRequest,
    UnmetNeedError,
)
from workers.methods.network.local_case import divide, local_case
from workers.training.fedavg.base import Clients
from workers.training.fedavg.config import ServerConfig
from workers.training.fedavg.errors import CheckpointError, RoundFailedError
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes
from workers.training.networks.weights import initial_weights

MANY: Clients = {f"c{i}": client_data(4 + i, 40 + i) for i in range(8)}
CLIENT = UnlearningRequest(frozenset({"c3"}))
ROWS = UnlearningRequest(rows={"c5": (0, 4)})
MIXED = UnlearningRequest(frozenset({"c1"}), {"c6": (2,), "c0": (0, 1, 2, 3)})
REQUESTS = {"client": CLIENT, "rows": ROWS, "mixed, a client without rows": MIXED}


@cache
def whole(method: ExactFun) -> Quantised:
    return trained(method, MANY)


def trained(method: ExactFun, clients: Clients | None = None) -> Quantised:
    if clients is None:
        return whole(method)
    return method.train(NETWORK, sizes(clients), CONFIG, InProcess(clients))


def case_of(method: ExactFun, request: UnlearningRequest = CLIENT) -> RecordedCase:
    found = trained(method)
    case = local_case(NETWORK, found.weights, request, CONFIG, MANY)
    return with_rounds(case, found.history)


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("clients", [0, 3])
@pytest.mark.parametrize("step", [1e-3, 0.2, 3.0])
def test_it_is_bit_for_bit_the_training_without(name: str, clients: int, step: float) -> None:
    method = ExactFun(step, clients)
    found = method.replay(case_of(method, REQUESTS[name]))
    oracle = trained(method, divide(MANY, REQUESTS[name])[0])
    assert equal(found.weights, oracle.weights)
    # The next request finds the history that the training without would have kept.
    assert len(found.history) == len(oracle.history) == CONFIG.rounds
    for one, other in zip(found.history, oracle.history, strict=True):
        assert equal(one.weights, other.weights)
        assert one.updates.keys() == other.updates.keys()
        for client in one.updates:
            assert equal(one.updates[client].delta, other.updates[client].delta)


def test_a_second_request_is_exact_too() -> None:
    method = ExactFun(0.1, 3)
    first = method.replay(case_of(method, CLIENT))
    stay = divide(MANY, CLIENT)[0]
    again = UnlearningRequest(frozenset({"c7"}))
    case = local_case(NETWORK, first.weights, again, CONFIG, stay)
    second = with_rounds(case, first.history)
    assert equal(method.run(second).weights, trained(method, divide(stay, again)[0]).weights)


def test_on_a_coarse_grid_a_row_takes_no_training_and_on_a_fine_one_all() -> None:
    row = UnlearningRequest(rows={"c7": (1,)})
    coarse = ExactFun(3.0)
    given = case_of(coarse, row)
    found = coarse.run(given)
    assert equal(found.weights, given.weights)
    assert found.notes["exact-fun.rounds-repeated"] == "0"
    assert found.work.rounds == CONFIG.rounds  # the one client, asked again in each
    fine = ExactFun(1e-6)
    found = fine.run(case_of(fine, row))
    assert found.notes["exact-fun.rounds-standing"] == "0"
    assert found.notes["exact-fun.rounds-repeated"] == str(CONFIG.rounds - 1)
    assert found.claim == "exact-retrained"


def test_a_client_who_leaves_a_model_that_stands_costs_nobody_anything() -> None:
    """A step so coarse that all rounds are zero: no engine is asked, kept updates suffice."""
    method = ExactFun(1e6)
    given = case_of(method)
    silent = replace(given, retained=Side(Silent(), given.retained.rows), targets=None)
    found = method.run(silent)
    assert found.work.rounds == found.work.bytes_up == 0
    # 6 rounds: 8 updates and one model, 15 numbers of 4 bytes each.
    assert found.notes["state.bytes"] == str(6 * 9 * 15 * 4)


def test_training_stays_on_the_grid() -> None:
    found = trained(ExactFun(0.125))
    for past in found.history:
        for part in past.weights.values():
            assert bool((part * 8 == torch.round(part * 8)).all())
    wanted = np.round(np.array([0.31, -0.31, 0.0625, -0.01]) * 8) / 8
    part = quantise({"w": torch.tensor([0.31, -0.31, 0.0625, -0.01])}, 0.125)["w"]
    assert part.tolist() == wanted.tolist()
    assert not bool(torch.signbit(part[3]))
    assert equal(quantise({"w": part}, 0.125), {"w": part})
    assert equal(
        found.history[0].weights, quantise(initial_weights(NETWORK, CONFIG.seed), 0.125)
    )


def test_somebody_who_does_not_answer_ends_a_training_that_is_to_be_exact() -> None:
    with pytest.raises(RoundFailedError):
        ExactFun().train(NETWORK, {**sizes(MANY), "ghost": 3}, CONFIG, InProcess(MANY))


def _other(given: RecordedCase, number: int) -> RecordedCase:
    past = list(given.history)
    past[number] = PastRound(given.history[number - 1].weights, past[number].updates)
    return replace(given, history=past)


BAD: dict[str, Callable[[], object]] = {
    "no history": lambda: ExactFun().run(replace(case_of(ExactFun()), history=())),
    "another step": lambda: ExactFun(0.2).run(case_of(ExactFun(0.1))),
    "a round missing": lambda: ExactFun().run(
        replace(case_of(ExactFun()), history=case_of(ExactFun()).history[1:])
    ),
    "a round of another": lambda: ExactFun(0.1).run(_other(case_of(ExactFun(0.1)), 2)),
    "another model": lambda: ExactFun().run(
        replace(case_of(ExactFun()), weights=initial_weights(NETWORK, 9))
    ),
    "a start that had seen rows": lambda: ExactFun().run(
        replace(case_of(ExactFun()), start=initial_weights(NETWORK, 9))
    ),
    "moments": lambda: ExactFun().run(
        replace(case_of(ExactFun()), config=replace(CONFIG, server=ServerConfig(momentum=0.5)))
    ),
    "participation": lambda: ExactFun().run(
        replace(case_of(ExactFun()), config=replace(CONFIG, participation=0.5))
    ),
    "step 0": lambda: ExactFun(0.0),
    "half a client": lambda: ExactFun(clients_per_round=0.5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", BAD)
def test_it_refuses(name: str) -> None:
    with pytest.raises(RefusedError):
        BAD[name]()


def test_needs_and_checkpoints() -> None:
    with pytest.raises(UnmetNeedError, match="no updates of past rounds"):
        ExactFun().run(replace(case_of(ExactFun()), history=()))
    with pytest.raises(CheckpointError):
        ExactFun().run(case_of(ExactFun()), Hooks(resume=b"what"))
