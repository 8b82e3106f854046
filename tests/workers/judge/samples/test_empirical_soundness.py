"""How often the verdict is wrong, over many simulated providers. Every seed is fixed."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import stats

from tests.workers.judge.empirical_claims import CLASSES, POLICY, World, noop, simulated
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


# What the tests assume of the rows, and no check can see: docs/attacks.md states both.
def test_erased_rows_that_are_harder_by_themselves_hide_what_is_left() -> None:
    def harder(claim: EmpiricalClaim) -> EmpiricalClaim:
        own = 1.5 * np.eye(CLASSES)[claim.forget_labels]
        return replace(
            claim,
            forget_before=claim.forget_before - own,
            forget_after=claim.forget_after - own,
        )

    some_left = World(forget=(5.0, 1.5))
    assert verdicts(20, some_left)["PASS"] == 0
    assert verdicts(20, some_left, harder)["PASS"] == 20
    assert verdicts(20, World(), harder)["FAIL"] == 20  # a model that never saw them


def test_near_copies_count_as_if_they_were_independent() -> None:
    rng = np.random.default_rng(5)

    def copied(claim: EmpiricalClaim) -> EmpiricalClaim:
        """Return the claim with ten near copies of a tenth of the rows."""

        def ten(*arrays: Any) -> list[Any]:
            rows = np.repeat(np.arange(len(arrays[0]) // 10), 10)
            noise = rng.normal(scale=0.01, size=arrays[1][rows].shape)
            return [arrays[0][rows], *(one[rows] + noise for one in arrays[1:])]

        forget = ten(claim.forget_labels, claim.forget_before, claim.forget_after)
        pool = ten(claim.pool_labels, claim.pool_before, claim.pool_after)
        return replace(
            claim,
            **dict(
                zip(("forget_labels", "forget_before", "forget_after"), forget, strict=True)
            ),
            **dict(zip(("pool_labels", "pool_before", "pool_after"), pool, strict=True)),
            forget_clients=np.zeros(len(forget[0]), dtype=np.int64),
            pool_clients=np.zeros(len(pool[0]), dtype=np.int64),
        )

    beyond = World(forget=(5.0, 0.6), rows=(500, 700, 300))  # an AUC of 0.607, and tau is 0.1
    assert verdicts(100, beyond)["PASS"] <= 3  # the first judgement spends 0.03
    assert verdicts(100, beyond, copied)["PASS"] >= 8
