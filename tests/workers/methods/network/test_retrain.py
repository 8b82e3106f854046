"""Retraining equals the training of a federation without the forgotten data."""

from dataclasses import replace

import pytest

from tests.workers.methods.network.small import (
    ON_THE_CPU,
    REQUESTS,
    SOME_ROWS,
    TRAINED,
    WHOLE,
    KilledError,
    Silent,
    case,
    equal,
    killed_after,
)
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, NETWORK, ROWS
from workers.errors import RefusedError
from workers.methods.network.base import Hooks, Side, Tick, UnlearningCase, UnlearningRequest
from workers.methods.network.retrain import Retrain
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.client.data import data_digest
from workers.training.fedavg.config import ServerConfig
from workers.training.fedavg.errors import CheckpointError
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes, train
from workers.training.networks.weights import digest_of, encode_weights, initial_weights

RETRAIN = Retrain()


def without(request: UnlearningRequest) -> dict[str, ClientData]:
    """The federation as if the targets had never joined, built by hand."""
    left = {}
    for name, data in CLIENTS.items():
        gone = request.rows.get(name, ())
        kept = [row for row in range(len(data)) if row not in gone]
        if name not in request.clients:
            left[name] = ClientData(data.inputs[kept], data.targets[kept])
    return left


@pytest.mark.parametrize("name", REQUESTS)
def test_it_is_bit_for_bit_the_training_without_them(name: str) -> None:
    request = REQUESTS[name]
    found = RETRAIN.run(case(request))
    never = without(request)
    alone = train(NETWORK, sizes(never), CONFIG, InProcess(never))
    assert equal(found.weights, alone.weights)
    assert not equal(found.weights, TRAINED)
    assert found.claim == "exact-retrained"
    assert found.work == alone.work
    start = encode_weights(
        NETWORK.id, NETWORK.parameters, initial_weights(NETWORK, CONFIG.seed)
    )
    assert found.notes == {
        **ON_THE_CPU,
        "retrain.data": data_digest(never),
        "retrain.rounds": "6",
        "retrain.seed": "3",
        "retrain.start": digest_of(start),
    }


def test_it_asks_neither_the_targets_nor_the_model() -> None:
    given = case()
    assert given.targets is not None
    other = {name: -part for name, part in TRAINED.items()}
    blind = replace(given, targets=Side(Silent(), given.targets.rows), weights=other)
    assert equal(RETRAIN.run(blind).weights, RETRAIN.run(given).weights)
    assert equal(RETRAIN.run(replace(given, targets=None)).weights, RETRAIN.run(given).weights)
    assert RETRAIN.needs == frozenset()


def test_a_killed_retraining_goes_on_from_every_checkpoint() -> None:
    once = RETRAIN.run(case())
    for saves in range(1, CONFIG.rounds + 1):
        kept, save = killed_after(saves)
        with pytest.raises(KilledError):
            RETRAIN.run(case(), Hooks(save=save))
        again: list[bytes] = []
        resumed = RETRAIN.run(case(), Hooks(resume=kept[-1], save=again.append))
        assert equal(resumed.weights, once.weights)
        assert resumed.work == once.work
        assert len(again) == CONFIG.rounds - saves


def checkpoints(given: UnlearningCase) -> list[bytes]:
    kept: list[bytes] = []
    RETRAIN.run(given, Hooks(save=kept.append))
    return kept


def test_a_planted_checkpoint_is_refused() -> None:
    """A retraining cannot start from weights trained on the forget set."""
    original: list[bytes] = []
    train(
        NETWORK,
        ROWS,
        CONFIG,
        InProcess(CLIENTS),
        data=data_digest(CLIENTS),
        save=original.append,
    )
    # The same number of rows for every client, one of them another row.
    swapped = replace(CLIENTS["anna"], inputs=CLIENTS["anna"].inputs.flip(0))
    same_sizes = Side(InProcess({**without(WHOLE), "anna": swapped}), case().retained.rows)
    digest = data_digest({**without(WHOLE), "anna": swapped})
    adam = replace(CONFIG, server=ServerConfig("adam", learning_rate=0.1))
    planted = {
        "the original training": original[2],
        "another request": checkpoints(case(SOME_ROWS))[2],
        "as many rows, but others": checkpoints(
            replace(case(), retained=same_sizes, data=digest)
        )[2],
        "another start": checkpoints(replace(case(), start=initial_weights(NETWORK, 77)))[2],
        "another seed": checkpoints(replace(case(), config=replace(CONFIG, seed=4)))[2],
        "another optimiser": checkpoints(replace(case(), config=adam))[2],
        "damaged": checkpoints(case())[2][:-1],
    }
    for name, data in planted.items():
        with pytest.raises(CheckpointError):
            RETRAIN.run(case(), Hooks(resume=data))
        assert name
    assert equal(
        RETRAIN.run(case(), Hooks(resume=checkpoints(case())[2])).weights,
        RETRAIN.run(case()).weights,
    )


def test_a_warm_start_is_refused() -> None:
    with pytest.raises(RefusedError, match="start of the retraining"):
        RETRAIN.run(case(start=TRAINED))


def test_a_start_that_never_saw_the_data_is_used() -> None:
    start = initial_weights(NETWORK, 77)
    found = RETRAIN.run(case(start=start))
    never = without(WHOLE)
    alone = train(NETWORK, sizes(never), CONFIG, InProcess(never), weights=start)
    assert equal(found.weights, alone.weights)
    assert "retrain.seed" not in found.notes


def test_the_rows_that_stay_must_be_pinned() -> None:
    with pytest.raises(RefusedError, match="digest"):
        RETRAIN.run(replace(case(), data=""))


def test_each_round_is_told_once() -> None:
    ticks: list[Tick] = []
    RETRAIN.run(case(), Hooks(tell=ticks.append))
    assert [(tick.phase, tick.done, tick.total) for tick in ticks] == [
        ("retrain", done, 6) for done in range(1, 7)
    ]
