"""The weighted mean in fractions, the optimisers number by number from the paper."""

from dataclasses import replace
from fractions import Fraction
from math import copysign, sqrt
from typing import Literal

import numpy as np
import pytest
import torch

from workers.errors import RefusedError
from workers.training.fedavg.base import ClientUpdate
from workers.training.fedavg.config import ServerConfig
from workers.training.fedavg.errors import DivergedError
from workers.training.fedavg.server import apply, initial_state, weighted_mean


def update(client: str, samples: int, values: list[float]) -> ClientUpdate:
    return ClientUpdate(1, client, "", {"w": torch.tensor(values)}, samples, 1, 0.0, 0, 0.0)


UPDATES = {
    "b": update("b", 3, [1.0, 0.1]),
    "a": update("a", 1, [-2.0, 0.3]),
    "c": update("c", 6, [0.5, 1e-7]),
}


@pytest.mark.parametrize("total", [None, 10, 25])
def test_the_mean_is_weighted_by_rows(total: int | None) -> None:
    rows = 10 if total is None else total
    got = weighted_mean(UPDATES, total)["w"]
    assert got.dtype == torch.float64
    for i in range(2):
        exact = sum(
            Fraction(u.samples, rows) * Fraction(float(u.delta["w"][i]))
            for u in UPDATES.values()
        )
        assert float(got[i]) == pytest.approx(float(exact), rel=1e-15)


def test_the_mean_does_not_know_the_order_of_arrival() -> None:
    rng = np.random.default_rng(0)
    many = {
        f"c{i}": update(f"c{i}", int(rng.integers(1, 99)), rng.standard_normal(50).tolist())
        for i in range(20)
    }
    mean = weighted_mean(many)["w"]
    for _ in range(5):
        names = rng.permutation(list(many)).tolist()
        assert torch.equal(weighted_mean({name: many[name] for name in names})["w"], mean)


def reference(config: ServerConfig, deltas: list[float], weight: float) -> float:
    """Reddi et al. 2021, Algorithm 2, for one weight."""
    m, v = 0.0, config.tau**2
    for delta in deltas:
        if config.optimizer == "sgd":
            m = config.momentum * m + delta
            step = m
        else:
            m = config.beta1 * m + (1 - config.beta1) * delta
            if config.optimizer == "adam":
                v = config.beta2 * v + (1 - config.beta2) * delta**2
            else:
                difference = v - delta**2
                sign = 0.0 if difference == 0 else copysign(1.0, difference)
                v = v - (1 - config.beta2) * delta**2 * sign
            step = m / (sqrt(v) + config.tau)
        weight = float(np.float32(weight + config.learning_rate * step))
    return weight


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "yogi"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_optimisers_are_the_papers(
    optimizer: Literal["sgd", "adam", "yogi"], momentum: float
) -> None:
    config = ServerConfig(optimizer, learning_rate=0.3, momentum=momentum, tau=0.01)
    rows = [[0.5, -1e-3, 0.0], [0.25, 2.0, 0.0], [-1.0, -1e-5, 0.0], [0.125, 0.01, 0.0]]
    start = [1.0, -2.0, 0.5]
    state = initial_state({"w": torch.tensor(start)}, config)
    for row in rows:
        state = apply(state, {"w": torch.tensor(row, dtype=torch.float64)}, config)
    for i, weight in enumerate(start):
        expected = reference(config, [row[i] for row in rows], weight)
        assert float(state.weights["w"][i]) == pytest.approx(expected, rel=1e-6)
    assert state.weights["w"].dtype == torch.float32


def test_yogi_and_adam_part_where_the_variance_falls() -> None:
    states = {}
    for optimizer in ("adam", "yogi"):
        config = replace(ServerConfig(), optimizer=optimizer)
        state = initial_state({"w": torch.zeros(1)}, config)
        for delta in (10.0, 0.01):
            state = apply(state, {"w": torch.tensor([delta], dtype=torch.float64)}, config)
        states[optimizer] = float(state.variance["w"])
    assert states["yogi"] > states["adam"]


def test_federated_averaging_keeps_no_moments() -> None:
    state = initial_state({"w": torch.ones(2)}, ServerConfig())
    assert state.momentum == state.variance == {}
    after = apply(state, {"w": torch.tensor([0.5, -1.0], dtype=torch.float64)}, ServerConfig())
    assert after.weights["w"].tolist() == [1.5, 0.0]
    assert state.weights["w"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("step", [float("inf"), float("nan"), 1e39])
def test_divergence_has_a_name(step: float) -> None:
    state = initial_state({"w": torch.ones(1)}, ServerConfig())
    with pytest.raises(DivergedError, match="w: not finite"):
        apply(state, {"w": torch.tensor([step], dtype=torch.float64)}, ServerConfig())


@pytest.mark.parametrize(
    "fields",
    [{"optimizer": "adagrad"}, {"learning_rate": -1}, {"momentum": 1}, {"beta1": 1.0}, {"beta2": -1}, {"tau": 0}],
)  # fmt: skip
def test_odd_configurations_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(RefusedError, match=next(iter(fields))):
        ServerConfig(**fields)  # type: ignore[arg-type]
