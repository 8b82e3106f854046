"""Who overfits the known attacks passes sometimes, and may not begin to pass more often.

Its model answers each erased row as it answered some unseen one. No attack can refute that
for good: docs/benchmarks/soundness.md counts how often it passes. What can be held is that
a change of the verifier does not make it easier.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from benchmarks.soundness.empirical import Scene, honest_scene
from benchmarks.soundness.networks import fitted
from benchmarks.soundness.updates import Provider, overfit_all
from benchmarks.soundness.worlds import make_world
from tests.redteam.small import SMALL
from workers.judge.samples.empirical import VERIFIER

torch.set_num_threads(1)

# Of the first six worlds the two in which it keeps the accuracy that policies ask for, so
# that nothing but attacks holds it. In the others it fails whatever they find.
SEEDS = (0, 3)
RUNS = 20  # in each
MOST = 0.1  # share of accepted runs; measured were 2 of 40
LEVEL = 0.01  # of an exact binomial test: 9 of 40 are still green, 10 red


@pytest.fixture(scope="module")
def imitators() -> list[Scene]:
    return [imitator(seed) for seed in SEEDS]


def imitator(seed: int) -> Scene:
    world, rng = make_world(SMALL, seed), np.random.default_rng([8, seed])
    provider = Provider(world, fitted(world, np.arange(SMALL.rows), seed), rng)
    return honest_scene(provider, overfit_all(provider))


def accepted(scene: Scene, runs: int) -> int:
    rng = np.random.default_rng(1)
    reports = (VERIFIER.verify(scene.claim(rng)) for _ in range(runs))
    return sum(report.result == "PASS" for report in reports)


def is_bounded(passed: int, runs: int) -> bool:
    found = binomtest(passed, runs, MOST, alternative="greater")
    return bool(found.pvalue > LEVEL)


def test_the_imitator_is_seldom_accepted(imitators: list[Scene]) -> None:
    passed = sum(accepted(scene, RUNS) for scene in imitators)
    assert is_bounded(passed, RUNS * len(imitators)), f"{passed} runs were accepted"


def test_the_imitator_comes_close_enough_to_notice_a_wider_margin(
    imitators: list[Scene],
) -> None:
    wide = [replace(scene, policy=replace(scene.policy, tau=0.15)) for scene in imitators]
    passed = sum(accepted(scene, RUNS // 4) for scene in wide)
    assert not is_bounded(passed, RUNS // 4 * len(imitators))
