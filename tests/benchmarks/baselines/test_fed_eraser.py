"""FedEraser against its formula written out in NumPy, and what it must not look at."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks.baselines.fed_eraser import FedEraser, Norm, calibrate
from benchmarks.baselines.history import PastRound
from tests.benchmarks.baselines.recorded_case import HISTORY, with_history
from tests.workers.methods.network.small import SOME_ROWS, WHOLE, equal
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, NETWORK, ROWS
from workers.errors import RefusedError
from workers.methods.network.base import Hooks, Tick
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import make_tasks
from workers.training.fedavg.seeds import derive
from workers.training.fedavg.server import apply, initial_state, weighted_mean
from workers.training.networks.weights import Weights, from_vector, to_vector

Float = NDArray[np.float64]


def vector(weights: Weights) -> Float:
    return to_vector(weights).numpy().astype(np.float64)


def by_hand(interval: int, ratio: float) -> Float:
    """M̃ of the rounds 1, 1 + interval, …, the clients asked directly, lengths in NumPy."""
    local = replace(CONFIG.local, epochs=ratio * CONFIG.local.epochs)
    stay = ["anna", "cleo"]
    rows = sum(ROWS[name] for name in stay)
    model = vector(HISTORY[0].weights)
    for number in range(0, len(HISTORY), interval):
        old = {name: vector(HISTORY[number].updates[name].delta) for name in stay}
        if number == 0:
            model = model + sum(ROWS[name] / rows * old[name] for name in stay)
        else:
            at = from_vector(torch.from_numpy(model), NETWORK)
            tasks = make_tasks(
                NETWORK,
                at,
                stay,
                local,
                round=number + 1,
                seed=derive(CONFIG.seed, "fed-eraser"),
            )
            new = InProcess(CLIENTS).run(tasks).updates
            for name in stay:
                length = np.sqrt((old[name] ** 2).sum())
                turned = vector(new[name].delta)
                model = model + ROWS[name] / rows * length * turned / np.sqrt((turned**2).sum())
        model = model.astype(np.float32).astype(np.float64)
    return model


@pytest.mark.parametrize(("interval", "ratio"), [(1, 0.5), (2, 0.5), (1, 1.0), (10, 0.5)])
def test_it_is_the_calibrated_sum(interval: int, ratio: float) -> None:
    found = FedEraser(interval, ratio).run(with_history())
    np.testing.assert_allclose(vector(found.weights), by_hand(interval, ratio), atol=2e-6)
    assert found.claim == "empirical-approximate"
    rounds = len(range(0, 6, interval))
    assert found.work.rounds == rounds - 1  # the first is not asked again
    assert found.notes["fed-eraser.calibrated-rounds"] == str(rounds - 1)
    assert found.notes["state.bytes"] == str(rounds * 3 * 15 * 4)


@pytest.mark.parametrize("kind", ["update", "tensor"])
def test_a_calibrated_update_has_the_old_length_and_the_new_direction(kind: Norm) -> None:
    old, new = HISTORY[0].updates["anna"].delta, HISTORY[3].updates["cleo"].delta
    found = calibrate(old, new, kind)
    groups = [[name] for name in old] if kind == "tensor" else [list(old)]
    for names in groups:
        parts = [
            np.concatenate([of[name].double().numpy().ravel() for name in names])
            for of in (old, new, found)
        ]
        was, turned, got = parts
        np.testing.assert_allclose(np.linalg.norm(got), np.linalg.norm(was), rtol=1e-6)
        cosine = got @ turned / np.linalg.norm(got) / np.linalg.norm(turned)
        assert cosine == pytest.approx(1, abs=1e-12)
    still = {name: 0 * part for name, part in new.items()}
    assert not vector(calibrate(old, still, kind)).any()


def test_no_update_of_the_target_enters() -> None:
    """Its updates double and the model that they led to is another: the result is not."""
    doubled, case = [], with_history()
    state = initial_state(HISTORY[0].weights, CONFIG.server)
    for past in HISTORY:
        bert = past.updates["bert"]
        delta = {name: 2 * part for name, part in bert.delta.items()}
        updates = {**past.updates, "bert": replace(bert, delta=delta)}
        doubled.append(PastRound(state.weights, updates))
        state = apply(state, weighted_mean(updates), CONFIG.server)
    other = replace(case, history=tuple(doubled), weights=state.weights)
    assert not equal(other.weights, case.weights)
    assert equal(FedEraser().run(other).weights, FedEraser().run(case).weights)


def test_it_asks_nobody_who_left_and_needs_no_target() -> None:
    alone = replace(with_history(), targets=None)
    ticks: list[Tick] = []
    found = FedEraser().run(alone, Hooks(tell=ticks.append))
    assert equal(found.weights, FedEraser().run(with_history()).weights)
    assert [tick.done for tick in ticks if tick.total == 6] == [1, 2, 3, 4, 5, 6]
    assert all(tick.loss is not None for tick in ticks if tick.total == 6 and tick.done > 1)


def test_half_the_local_epochs_take_half_the_steps() -> None:
    whole, half = FedEraser(ratio=1.0).run(with_history()), FedEraser().run(with_history())
    assert half.work.steps * 2 == whole.work.steps
    assert half.work.flops < whole.work.flops


BAD: dict[str, Callable[[], object]] = {
    "interval 0": lambda: FedEraser(0),
    "ratio 0": lambda: FedEraser(ratio=0.0),
    "ratio above 1": lambda: FedEraser(ratio=1.5),
    "unknown norm": lambda: FedEraser(norm="layer"),  # type: ignore[arg-type]
    "rows": lambda: FedEraser().run(with_history(SOME_ROWS)),
    "no history": lambda: FedEraser().run(with_history(WHOLE, history=())),
    "another history": lambda: FedEraser().run(with_history(WHOLE, history=HISTORY[1:3])),
}


@pytest.mark.parametrize("name", BAD)
def test_it_refuses(name: str) -> None:
    with pytest.raises(RefusedError):
        BAD[name]()
