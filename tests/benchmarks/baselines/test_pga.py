"""PGA stays in its ball; its reference, radius and steps against NumPy."""

from collections.abc import Callable
from dataclasses import replace
from math import nan

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.baselines.history import PastRound
from benchmarks.baselines.pga import Pga, ball_radius, project, reference_model
from tests.benchmarks.baselines.recorded_case import HISTORY, with_history
from tests.workers.methods.network.small import SOME_ROWS, Silent, equal
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, NETWORK, ROWS
from workers.errors import RefusedError
from workers.methods.network.base import Side, UnlearningRequest, UnmetNeedError
from workers.methods.network.baselines.ascent import ascend
from workers.methods.network.baselines.central import RowsElsewhereError
from workers.methods.network.recovery import Recovery
from workers.training.fedavg.evaluate import evaluate
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import make_tasks
from workers.training.fedavg.seeds import derive
from workers.training.networks.weights import (
    Weights,
    difference,
    initial_weights,
    norm,
    to_vector,
)

NONE = Recovery(rounds=0)
LEFT = frozenset({"bert"})


def numbers(weights: Weights) -> NDArray[np.float64]:
    return to_vector(weights).double().numpy()


def test_the_reference_is_the_papers_where_rows_are_equal() -> None:
    last = HISTORY[-1]
    level = PastRound(
        last.weights, {name: replace(u, samples=4) for name, u in last.updates.items()}
    )
    models = {n: numbers(last.weights) + numbers(u.delta) for n, u in last.updates.items()}
    mean = sum(models.values()) / 3
    wanted = (3 * mean - models["bert"]) / 2  # (N w - w_i) / (N - 1)
    np.testing.assert_allclose(numbers(reference_model(level, LEFT)), wanted, atol=1e-6)
    weighted = (7 * models["anna"] + 5 * models["cleo"]) / 12
    np.testing.assert_allclose(numbers(reference_model(last, LEFT)), weighted, atol=1e-6)


def test_the_radius_is_a_third_of_the_mean_distance() -> None:
    reference, seeds = HISTORY[-1].weights, [3, 8, 21]
    lengths = [
        np.linalg.norm(numbers(initial_weights(NETWORK, seed)) - numbers(reference))
        for seed in seeds
    ]
    assert ball_radius(NETWORK, reference, seeds) == pytest.approx(np.mean(lengths) / 3)
    square = np.sqrt(np.mean(np.square(lengths)) / 3)
    assert ball_radius(NETWORK, reference, seeds, "squared") == pytest.approx(square)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), radius=st.floats(1e-3, 10), far=st.floats(0, 30))
def test_the_projection_is_the_nearest_point_of_the_ball(
    seed: int, radius: float, far: float
) -> None:
    center = initial_weights(NETWORK, 1)
    away = torch.randn(15, generator=torch.Generator().manual_seed(seed)).double()
    away = far * away / away.norm()
    module = NETWORK.build(1)
    with torch.no_grad():
        start = 0
        for name in sorted(center):
            part = dict(module.named_parameters())[name]
            part.add_(away[start : start + part.numel()].view_as(part).float())
            start += part.numel()
    project(module, center, radius)
    moved = {n: p.detach() for n, p in module.named_parameters()}
    off = numbers({n: moved[n] for n in sorted(moved)}) - numbers(center)
    assert np.linalg.norm(off) <= radius + 1e-6  # weights of about 1, rounded to float32
    wanted = away.numpy() * min(1.0, radius / far if far else 1.0)
    np.testing.assert_allclose(off, wanted, atol=1e-5)


@pytest.mark.parametrize("rate", [0.01, 1.0, 100.0])
def test_it_stays_in_its_ball_whatever_the_rate(rate: float) -> None:
    case = with_history()
    reference = reference_model(HISTORY[-1], LEFT)
    seeds = [derive(CONFIG.seed, "pga", i) for i in range(10)]
    radius = ball_radius(NETWORK, reference, seeds)
    found = Pga(learning_rate=rate, stop=None, recovery=NONE).run(case)
    gone = norm(difference(found.weights, reference))
    assert gone <= radius * (1 + 1e-5)
    if rate >= 1:  # the plain ascent goes further: the ball is what holds it
        assert gone == pytest.approx(radius, rel=1e-4)
    assert float(found.notes["pga.radius"]) == pytest.approx(radius, rel=1e-5)
    assert found.claim == "empirical-approximate"


def test_it_ascends_and_several_targets_stay_in_the_ball() -> None:
    case = with_history()
    reference = reference_model(HISTORY[-1], LEFT)
    found = Pga(learning_rate=0.1, stop=None, recovery=NONE).run(case)
    before, after = (
        evaluate(NETWORK, weights, CLIENTS["bert"]).loss
        for weights in (reference, found.weights)
    )
    assert after > before + 0.1
    both = UnlearningRequest(frozenset({"anna", "bert"}))
    two = Pga(learning_rate=100.0, stop=None, recovery=NONE).run(with_history(both))
    reference = reference_model(HISTORY[-1], frozenset({"anna", "bert"}))
    moved = norm(difference(two.weights, reference))
    assert 0 < moved <= float(two.notes["pga.radius"]) * (1 + 1e-5)


def test_it_stops_at_the_distance_from_the_targets_own_model() -> None:
    case = with_history()
    slow = Pga(learning_rate=0.01, stop=1e-6, recovery=NONE).run(case)
    assert slow.work.steps == 1  # bert's own model is further than that from w_ref
    whole = Pga(learning_rate=0.01, stop=None, recovery=NONE).run(case)
    assert whole.work.steps == 5 * 3  # 12 rows in batches of 4
    assert slow.work.rounds == whole.work.rounds == 1
    own = numbers(HISTORY[-1].weights) + numbers(HISTORY[-1].updates["bert"].delta)
    apart = ((numbers(reference_model(HISTORY[-1], LEFT)) - own) ** 2).sum()
    assert float(whole.notes["pga.apart"]) == pytest.approx(apart, rel=1e-4)


def test_the_ascent_is_clipped_momentum_up_the_loss() -> None:
    """Against NumPy: multinomial logistic regression, its gradient from the formula."""
    config = replace(
        CONFIG.local, epochs=2, learning_rate=0.3, momentum=0.9, clip_norm=0.5, batch_size=12
    )
    start = initial_weights(NETWORK, 0)
    (task,) = make_tasks(NETWORK, start, ["bert"], config, round=1, seed=5)
    found = ascend(task, CLIENTS["bert"])
    x = CLIENTS["bert"].inputs.double().numpy()
    wanted = np.eye(3)[CLIENTS["bert"].targets.numpy()]
    w, b = (start[name].double().numpy() for name in ("head.weight", "head.bias"))
    buffers = [np.zeros_like(w), np.zeros_like(b)]
    for _ in range(2):
        p = np.exp(x @ w.T + b)
        p /= p.sum(1, keepdims=True)
        gradients = [(p - wanted).T @ x / 12, (p - wanted).mean(0)]
        length = np.sqrt(sum((g**2).sum() for g in gradients))
        assert length > 0.5
        buffers = [0.9 * m + 0.5 / length * g for m, g in zip(buffers, gradients, strict=True)]
        w, b = w + 0.3 * buffers[0], b + 0.3 * buffers[1]
    np.testing.assert_allclose(start["head.weight"] + found.delta["head.weight"], w, atol=1e-5)
    np.testing.assert_allclose(start["head.bias"] + found.delta["head.bias"], b, atol=1e-5)


def test_one_kept_round_is_enough_and_others_are_not_asked_to_ascend() -> None:
    case = with_history()
    whole = Pga(recovery=NONE).run(case)
    last = Pga(recovery=NONE).run(replace(case, history=HISTORY[-1:]))
    silent = replace(case, retained=Side(Silent(), case.retained.rows))
    assert equal(whole.weights, last.weights)
    assert equal(whole.weights, Pga(recovery=NONE).run(silent).weights)
    assert last.notes["state.bytes"] == str(3 * 15 * 4)


class Elsewhere:
    """Clients that answer, whose rows are not here."""

    def __init__(self) -> None:
        self.run = InProcess(CLIENTS).run


def missing() -> PastRound:
    last = HISTORY[-1]
    return PastRound(last.weights, {"anna": last.updates["anna"], "cleo": last.updates["cleo"]})


def test_a_target_that_missed_the_last_round_is_a_named_refusal() -> None:
    with pytest.raises(UnmetNeedError, match="took no part in the last round"):
        reference_model(missing(), LEFT)
    with pytest.raises(UnmetNeedError, match="everybody else"):
        reference_model(HISTORY[-1], frozenset(ROWS))


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "rows": (lambda: Pga().run(with_history(SOME_ROWS)), "forgets whole clients"),
    "no history": (lambda: Pga().run(with_history(history=())), "no updates of past rounds"),
    "no target": (lambda: Pga().run(replace(with_history(), targets=None)), "offline"),
    "another last round": (
        lambda: Pga().run(with_history(history=HISTORY[:1])),
        "lead to this",
    ),
    "radius of nothing": (lambda: Pga(random_models=0), "random_models"),
    "stop 0": (lambda: Pga(stop=0.0), "stop"),
    "stop NaN": (lambda: Pga(stop=nan), "stop"),
    "distance": (lambda: Pga(distance="cosine"), "distance"),  # type: ignore[arg-type]
    "clip": (lambda: Pga(clip_norm=-1.0), "clip_norm"),
    "momentum": (lambda: Pga(momentum=1.0), "momentum"),
}


@pytest.mark.parametrize("name", BAD)
def test_it_refuses(name: str) -> None:
    call, said = BAD[name]
    with pytest.raises(RefusedError, match=said):
        call()


def test_rows_that_are_elsewhere_are_a_named_refusal() -> None:
    case = with_history()
    assert case.targets is not None
    elsewhere = replace(case, targets=Side(Elsewhere(), case.targets.rows))
    with pytest.raises(RowsElsewhereError, match="in-process"):
        Pga().run(elsewhere)
