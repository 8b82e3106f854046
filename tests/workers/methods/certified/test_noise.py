"""Noise from a key: Gaussian, different for every context, and large enough."""

from math import exp, sqrt

import numpy as np
import pytest
import torch
from scipy import stats

from workers.errors import RefusedError
from workers.methods.certified.budget import Budget
from workers.methods.certified.noise import commitment, gaussian, new_key
from workers.methods.certified.release import noisy
from workers.training.networks.registry import network
from workers.training.networks.weights import initial_weights, to_vector

KEY = bytes(range(32))


def test_it_is_gaussian() -> None:
    drawn = gaussian(KEY, "rows", 100_001)
    assert drawn.shape == (100_001,)
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(drawn[:-1:2], drawn[1::2])[0, 1]) < 0.02
    assert abs(np.corrcoef(drawn[:-1:2] ** 2, drawn[1::2] ** 2)[0, 1]) < 0.02
    assert np.abs(drawn).max() < 8.6


def test_every_key_and_context_has_its_own() -> None:
    drawn = [gaussian(KEY, "a", 1000), gaussian(KEY, "b", 1000), gaussian(bytes(32), "a", 1000)]
    assert np.abs(np.corrcoef(drawn) - np.eye(3)).max() < 0.15
    assert (gaussian(KEY, "a", 999) == drawn[0][:999]).all()
    assert new_key() != new_key()
    assert len(new_key()) == 32


def test_a_commitment_is_of_one_key_and_is_no_noise() -> None:
    assert commitment(KEY) != commitment(bytes(32))
    assert len(commitment(KEY)) == 64
    for bad in (b"", KEY[:31], "k" * 32):
        with pytest.raises(RefusedError, match="32 bytes"):
            commitment(bad)  # type: ignore[arg-type]


def test_centre_and_noise_are_added_in_float64_and_rounded_once() -> None:
    net = network("logistic", {"features": 3, "classes": 2})
    centre = initial_weights(net, 1)
    published = to_vector(noisy(net, centre, KEY, "rows", 0.25))
    exact = to_vector(centre).double().numpy() + 0.25 * gaussian(KEY, "rows", 8)
    assert torch.equal(published, torch.from_numpy(exact.astype(np.float32)))


def test_in_one_dimension_no_event_tells_the_models_apart_beyond_epsilon_and_delta() -> None:
    # Half-lines are the best events against a shift of a Gaussian (Neyman and Pearson).
    budget, draws = Budget(0.5, 0.5, 0.02, 4), 40_000
    noise = budget.sigma * gaussian(KEY, "trial", 2 * draws)

    def worst(shift: float) -> float:
        """Return the largest P[x > t] - e^ε P'[x > t] over t: an estimate of δ."""
        here, there = np.sort(noise[:draws] + shift), np.sort(noise[draws:])
        ranks = np.searchsorted(there, here, side="right")
        above = 1 - np.arange(draws) / draws
        return float((above - exp(budget.epsilon) * (1 - ranks / draws)).max())

    error = 4 * (1 + exp(budget.epsilon)) / sqrt(4 * draws)
    hidden = sqrt(budget.releases) * budget.allowance
    assert worst(hidden) <= budget.delta + error
    assert worst(3 * hidden) > budget.delta + 4 * error
