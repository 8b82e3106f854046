"""Noisy fine-tuning of a perceptron; the oracle is written in NumPy from the formulas alone."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.judge.certified.logistic_claims import box_muller
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, Meddling
from workers.errors import RefusedError
from workers.methods.certified.budget import BudgetSpentError
from workers.methods.certified.noisy_finetuning import NoisyFinetuning
from workers.methods.network.base import Side, UnlearningCase, UnlearningRequest
from workers.methods.network.local_case import local_case
from workers.training.fedavg.errors import DivergedError, RoundFailedError
from workers.training.fedavg.noisy import clip
from workers.training.networks.registry import network
from workers.training.networks.weights import Weights, initial_weights, to_vector

HEAD = network("mlp", {"features": 4, "hidden": 3, "classes": 3})
KEY, DATA = bytes(range(32)), "ab" * 32
METHOD = NoisyFinetuning(
    steps=3,
    learning_rate=0.5,
    pull=0.3,
    start_norm=0.4,
    gradient_norm=0.05,
    epsilon=8.0,
    releases=2,
    recovery_rounds=0,
)


def case(weights: Weights | None = None) -> UnlearningCase:
    if weights is None:
        far = initial_weights(HEAD, 99)
        weights = {name: 2 * part for name, part in far.items()}
    request = UnlearningRequest(rows={"bert": (2,)})
    return local_case(HEAD, weights, request, CONFIG, CLIENTS, threads=1, data=DATA)


def gradient(theta: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the mean cross-entropy's gradient, weights in the order of their names."""
    b2, w2 = theta[:3], theta[3:12].reshape(3, 3)
    b1, w1 = theta[12:15], theta[15:].reshape(3, 4)
    inner = rows @ w1.T + b1
    seen = np.maximum(inner, 0)
    z = seen @ w2.T + b2
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p[np.arange(len(rows)), labels] -= 1
    p /= len(rows)
    back = (p @ w2) * (inner > 0)
    parts = [p.sum(0), (p.T @ seen).ravel(), back.sum(0), (back.T @ rows).ravel()]
    found: np.ndarray = np.concatenate(parts)
    return found


def oracle(
    given: UnlearningCase,
    sigma: float,
    *,
    steps: int = 3,
    c0: float = 0.4,
    c1: float = 0.05,
    left_in: bool = False,
    key: bytes = KEY,
) -> np.ndarray:
    rows = np.concatenate([part.inputs.numpy() for _, part in sorted(CLIENTS.items())])
    labels = np.concatenate([part.targets.numpy() for _, part in sorted(CLIENTS.items())])
    if not left_in:
        out = len(CLIENTS["anna"]) + 2
        rows, labels = np.delete(rows, out, 0), np.delete(labels, out)
    start = to_vector(initial_weights(HEAD, CONFIG.seed)).double().numpy()
    y = to_vector(given.weights).double().numpy() - start
    y = y * min(1, c0 / np.linalg.norm(y))
    for step in range(1, steps + 1):
        g = gradient(start + y, rows.astype(np.float64), labels)
        g = g * min(1, c1 / np.linalg.norm(g))
        noise = box_muller(key, f"{DATA}|0|noisy {step}", len(y))
        y = y - 0.5 * (g + 0.3 * y) + sigma * noise
    found: np.ndarray = start + y
    return found


def test_the_steps_are_those_of_the_formulas_and_each_part_of_them_counts() -> None:
    given_case, sigma = case(), METHOD.chosen.sigma
    found = to_vector(METHOD.keyed(given_case, KEY).weights).double().numpy()
    assert np.abs(found - oracle(given_case, sigma)).max() < 2e-5
    others = {
        "one step too few": oracle(given_case, sigma, steps=2),
        "start not clipped": oracle(given_case, sigma, c0=1e9),
        "gradient not clipped": oracle(given_case, sigma, c1=1e9),
        "one row left in": oracle(given_case, sigma, left_in=True),
        "another key": oracle(given_case, sigma, key=bytes(32)),
        "less noise": oracle(given_case, sigma * 0.99),
    }
    for name, other in others.items():
        assert np.abs(found - other).max() > 1e-4, name


def test_equal_cases_and_keys_give_equal_bits_and_another_ordinal_other_noise() -> None:
    recovering = replace(METHOD, recovery_rounds=2)
    first, again = (to_vector(recovering.keyed(case(), KEY).weights) for _ in range(2))
    assert torch.equal(first, again)
    later = to_vector(replace(recovering, ordinal=1).keyed(case(), KEY).weights)
    assert float((first - later).abs().max()) > 0.01
    # Recovery continues from the noisy weights: another start gives other bits.
    assert not torch.equal(first, to_vector(METHOD.keyed(case(), KEY).weights))


def test_from_two_starts_within_the_first_norm_nothing_differs_but_the_start() -> None:
    """Beyond C₀, only the direction of the published model remains."""
    near = case()
    far = case({name: 1000 * part for name, part in near.weights.items()})
    shift = to_vector(METHOD.keyed(far, KEY).weights) - to_vector(
        METHOD.keyed(near, KEY).weights
    )
    # z_T without any shift hidden: c³·2C₀ + 2γC₁(1 + c + c²) with c = 1 - γλ = .85
    assert 0 < float(shift.norm()) <= 0.85**3 * 0.8 + 0.05 * (1 + 0.85 + 0.7225)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=40),
    st.floats(1e-9, 1e9),
)
def test_clipping_holds_in_exact_arithmetic(entries: list[float], limit: float) -> None:
    found = clip(np.array(entries), limit)
    squares = sum((Fraction(entry) ** 2 for entry in found.tolist()), Fraction(0))
    room = Fraction(limit) * (1 - Fraction(1, 2**21))
    assert squares <= room**2


def test_what_is_not_finite_or_too_far_has_no_end() -> None:
    with pytest.raises(DivergedError):
        clip(np.array([1.0, np.nan]), 1.0)
    tiny = replace(METHOD, start_norm=1e8, gradient_norm=1e-9, learning_rate=1e-9)
    with pytest.raises(DivergedError, match="too far from the start"):
        tiny.keyed(case(), KEY)


def test_everybody_who_stays_must_answer() -> None:
    rows = {name: len(data) for name, data in CLIENTS.items() if name != "bert"}
    side = Side(Meddling({"anna": lambda _: None}), rows)
    whole = UnlearningRequest(frozenset({"bert"}))
    silent = replace(case(), retained=side, request=whole, targets=None)
    with pytest.raises(RoundFailedError, match="1 of 2 clients"):
        METHOD.keyed(silent, KEY)


def test_what_cannot_be_certified_is_refused_with_its_remedy() -> None:
    large = network("mlp", {"features": 400, "hidden": 25, "classes": 3})
    request = UnlearningRequest(rows={"bert": (2,)})
    given_case = local_case(
        large, initial_weights(large, 0), request, CONFIG, CLIENTS, data=DATA
    )
    with pytest.raises(RefusedError, match=r"at most 10000 parameters .* has 10103.*retrain"):
        METHOD.keyed(given_case, KEY)
    with pytest.raises(BudgetSpentError, match="2 releases"):
        replace(METHOD, before=2).keyed(case(), KEY)
    with pytest.raises(RefusedError, match="digest"):
        METHOD.keyed(replace(case(), data=""), KEY)
    for wrong in ({"steps": 0}, {"pull": 3.0}, {"start_norm": 0.0}, {"before": -1}):
        with pytest.raises(RefusedError, match=next(iter(wrong))):
            replace(METHOD, **wrong)


def test_weights_that_no_client_can_train_on_have_no_end() -> None:
    wild = replace(METHOD, start_norm=1e6, gradient_norm=1e3, recovery_rounds=1)
    strict = replace(case(), config=replace(CONFIG, max_norm=1e-6))
    with pytest.raises(DivergedError, match="no client gave a usable update"):
        wild.keyed(strict, KEY)
