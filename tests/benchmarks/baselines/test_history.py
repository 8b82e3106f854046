"""Kept updates: that they are the training's, and that no other history is believed."""

from dataclasses import replace

import pytest
import torch

from benchmarks.baselines.history import (
    PastRound,
    Recorder,
    check_history,
    kept_bytes,
    start_of,
)
from tests.benchmarks.baselines.recorded_case import HISTORY, with_history
from tests.workers.methods.network.small import TRAINED, equal
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, NETWORK, ROWS, Meddling
from workers.errors import RefusedError
from workers.training.fedavg.config import ServerConfig
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import make_tasks, train
from workers.training.networks.weights import initial_weights


def test_recording_changes_no_bit_of_the_training() -> None:
    recorder = Recorder(InProcess(CLIENTS), ROWS)
    assert equal(train(NETWORK, ROWS, CONFIG, recorder).weights, TRAINED)
    assert len(recorder.history) == CONFIG.rounds
    assert equal(recorder.history[0].weights, initial_weights(NETWORK, CONFIG.seed))
    assert all(list(past.updates) == sorted(ROWS) for past in recorder.history)
    # 6 rounds of 3 clients, 4 x 3 weights and 3 biases, 4 bytes each.
    assert kept_bytes(recorder.history) == 6 * 3 * 15 * 4


def test_the_last_round_alone_can_be_kept_and_derivatives_are_not() -> None:
    recorder = Recorder(InProcess(CLIENTS), ROWS, last=True)
    train(NETWORK, ROWS, CONFIG, recorder)
    assert len(recorder.history) == 1
    assert equal(recorder.history[0].weights, HISTORY[-1].weights)
    tasks = make_tasks(
        NETWORK, TRAINED, ROWS, CONFIG.local, round=1, seed=0, operation="gradient"
    )
    recorder.run(tasks, timeout=0)
    assert equal(recorder.history[0].weights, HISTORY[-1].weights)


def test_an_answer_that_the_training_drops_is_not_kept() -> None:
    broken = Meddling(
        {"bert": lambda update: replace(update, samples=99), "cleo": lambda _: None}
    )
    recorder = Recorder(broken, ROWS)
    trained = train(NETWORK, ROWS, CONFIG, recorder)
    assert list(recorder.history[0].updates) == ["anna"]
    assert len(recorder.history[1].updates) == 3
    found = replace(with_history(), weights=trained.weights, history=tuple(recorder.history))
    check_history(found)


@pytest.mark.parametrize(
    "server",
    [
        ServerConfig(),
        ServerConfig(momentum=0.9),
        ServerConfig("adam", 0.1),
        ServerConfig("yogi", 0.1),
    ],
    ids=lambda server: f"{server.optimizer}-{server.momentum}",
)
def test_a_history_leads_to_its_model_with_any_server(server: ServerConfig) -> None:
    config = replace(CONFIG, server=server)
    recorder = Recorder(InProcess(CLIENTS), ROWS)
    weights = train(NETWORK, ROWS, config, recorder).weights
    good = replace(
        with_history(), weights=weights, config=config, history=tuple(recorder.history)
    )
    check_history(good)
    with pytest.raises(RefusedError, match="does not lead to this model"):
        check_history(replace(good, weights=TRAINED if server.momentum else HISTORY[2].weights))


def nudged(past: PastRound) -> PastRound:
    update = past.updates["anna"]
    delta = {name: part + 1e-3 for name, part in update.delta.items()}
    return PastRound(past.weights, {**past.updates, "anna": replace(update, delta=delta)})


BAD = {
    "a hole": (*HISTORY[:2], *HISTORY[3:]),
    "the last round missing": HISTORY[:-1],
    "a round without updates": (*HISTORY[:-1], PastRound(HISTORY[-1].weights, {})),
    "a client missing": (
        *HISTORY[:-1],
        PastRound(
            HISTORY[-1].weights, {n: u for n, u in HISTORY[-1].updates.items() if n != "cleo"}
        ),
    ),
    "a changed update": (HISTORY[0], nudged(HISTORY[1]), *HISTORY[2:]),
    "NaN": (
        *HISTORY[:-1],
        PastRound(
            {n: torch.full_like(p, torch.nan) for n, p in TRAINED.items()}, HISTORY[-1].updates
        ),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_another_history_is_refused(name: str) -> None:
    with pytest.raises(RefusedError, match="puf-special, hf-kcu or retrain"):
        check_history(with_history(history=BAD[name]))


def test_the_start_is_the_seeds_or_the_one_given() -> None:
    assert equal(start_of(with_history()), initial_weights(NETWORK, CONFIG.seed))
    assert start_of(with_history(start=TRAINED)) is TRAINED
