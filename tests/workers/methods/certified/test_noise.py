"""Noise from a key: Gaussian, different for every context, and large enough."""

from math import acos, exp, log, pi, sqrt

import numpy as np
import pytest
import torch
from scipy import stats

from app.schemas.families.certified import LEAST_DELTA
from workers.errors import RefusedError
from workers.methods.certified.budget import Budget, largest_shift
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


def test_radii_of_53_bits_tell_centres_apart_where_a_registration_takes_no_delta() -> None:
    # A published pair of weights is at one of the radii √(-2 ln(k/2^53)) from its own centre. The
    # largest lie so far apart that float32 shows it, which is no event of a Gaussian.
    rng, most, sigma, epsilon = np.random.default_rng(0), 2**16, 0.005, 1.0
    radius = np.sqrt(-2 * np.log(rng.integers(1, most + 1, 50_000) * 2.0**-53))
    angle = 2 * np.pi * rng.random(len(radius))
    centre = sigma * np.array([2.0, -2.0])
    noise = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    published = (centre + sigma * noise).astype(np.float32)

    def told(by: float) -> float:
        """Return the share of pairs at such a radius from the centre, shifted by sigmas."""
        off = (published - centre) / sigma - by
        place = 2.0**53 * np.exp(-np.square(off).sum(1) / 2)
        error = place * (np.abs(off) * np.spacing(np.abs(published))).sum(1) / (2 * sigma)
        return float((np.abs(place - np.rint(place)) <= error).mean())

    pairs = most * 2.0**-53
    for_each = pairs * (told(0.0) - exp(epsilon) * told(1e-3)) / 2
    assert 1e-12 < for_each < LEAST_DELTA
    # No draw is larger: of a shifted centre, values are seen that the other cannot give.
    shift, largest = largest_shift(epsilon, 1e-30), sqrt(2 * 53 * log(2))
    assert acos(1 - shift / largest) / pi * 2.0**-53 > 1e-18
