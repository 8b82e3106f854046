"""How often the verdict is wrong, over many simulated providers. Every seed is fixed."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy import stats

from tests.workers.judge.empirical_claims import POLICY, World, noop, simulated
from workers.judge.policy.document import digest
from workers.judge.samples.empirical import VERIFIER
from workers.judge.samples.empirical_claim import EmpiricalClaim

# One attack is cheap, and fooled more easily than four.
YEOM = replace(POLICY, attacks=("yeom",), minimum_pairs=300)


def verdicts(
    runs: int, world: World, change: Callable[[EmpiricalClaim], EmpiricalClaim] = lambda c: c
) -> Counter[str]:
    found = Counter[str]()
    for seed in range(runs):
        claim = change(simulated(seed, world))
        claim = replace(claim, policy=YEOM, policy_digest=digest(YEOM))
        found[VERIFIER.verify(claim).result] += 1
    return found


def most(accepted: int, runs: int) -> float:
    """Return the upper 95 % bound of the accepted share."""
    return float(stats.binomtest(accepted, runs, alternative="less").proportion_ci(0.95).high)


def test_a_provider_who_does_nothing_is_not_accepted() -> None:
    found = verdicts(300, World(rows=(450, 560, 200)), noop)
    assert found["PASS"] == 0
    assert most(found["PASS"], 300) < 0.01
    assert found["FAIL"] >= 290


def test_nor_at_the_edge_where_controls_barely_pass() -> None:
    found = verdicts(60, World(forget=(0.9, 0.9), retained=(0.9, 0.9)), noop)
    assert found["PASS"] == 0
    assert found["INCONCLUSIVE"]
    assert found["FAIL"]


def test_a_provider_who_perturbs_or_relabels_is_not_accepted() -> None:
    assert verdicts(40, World(forget=(5.0, 5.0), noise=2.0))["PASS"] == 0
    assert verdicts(40, World(forget=(5.0, -3.0)))["PASS"] == 0
    assert verdicts(40, World(forget=(5.0, 1.5)))["PASS"] == 0


def test_an_honest_model_is_accepted() -> None:
    assert verdicts(120, World())["PASS"] >= 0.95 * 120


def test_nothing_is_accepted_without_memory_before() -> None:
    found = verdicts(40, World(forget=(0.0, 0.0), retained=(0.0, 0.0)))
    assert found == {"INCONCLUSIVE": 40}


def test_a_stream_of_models_at_the_margin_seldom_passes() -> None:
    """Models whose attack succeeds with probability 1/2 + tau, request after request."""
    from workers.judge.inference.intervals import spent, tost

    rng, wrong = np.random.default_rng(0), 0
    for _ in range(2000):
        counts = rng.binomial(1000, 0.6, size=10)
        wrong += any(tost(int(k), 1000, 0.1, spent(0.05, i)) for i, k in enumerate(counts))
    assert wrong / 2000 <= 0.05
