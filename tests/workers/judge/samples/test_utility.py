"""Accuracies beside those of a retrained model: reported, and limited if a policy says so."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from lethe.certificates.statement import CheckPart
from tests.workers.judge.empirical_claims import POLICY, simulated
from workers.judge.policy.document import digest
from workers.judge.samples.empirical import VERIFIER

HONEST = simulated(1)
BOTH = np.concatenate([HONEST.forget_after, HONEST.pool_after])
# Of 300 rows that the published model all gets right.
WORSE = HONEST.retained_after * np.where(np.arange(300) < 30, -1, 1)[:, None]
LIMIT = "retained-accuracy-gap"


def judged(
    limits: dict[str, float], **models: Any
) -> tuple[str, dict[str, CheckPart], set[str]]:
    """Return the verdict, its checks by name, and the names of those that did not pass."""
    policy = replace(POLICY, attacks=("yeom",), distances=limits)
    claim = replace(HONEST, policy=policy, policy_digest=digest(policy), **models)
    report = VERIFIER.verify(claim)
    checks = {check.name: check for check in report.checks}
    return report.result, checks, {name for name, check in checks.items() if not check.passed}


def test_accuracies_are_compared_with_those_of_the_retrained_model() -> None:
    result, checks, _ = judged({}, retrained=BOTH, retrained_retained=WORSE)
    assert result == "PASS"
    found = checks["distance:retained-accuracy"]
    assert found.value == "+0.1000: 1.0000 published, 0.9000 retrained, 300 rows"
    better, worse = (
        stats.binomtest(rows, 300).proportion_ci(0.975, "exact") for rows in (30, 0)
    )
    assert found.interval is not None
    want = better.low - worse.high, better.high - worse.low
    assert tuple(map(float, found.interval)) == pytest.approx(want, rel=1e-5)
    assert found.threshold is None
    for name, rows in (("forget", 500), ("test", 600)):
        value = checks[f"distance:{name}-accuracy"].value
        assert value.startswith("+0.0000: ")
        assert value.endswith(f" {rows} rows")


def test_a_policy_may_limit_the_gap_on_retained_rows() -> None:
    models = {"retrained": BOTH, "retrained_retained": WORSE}
    assert judged({LIMIT: 0.2}, **models)[0] == "PASS"
    result, _, failed = judged({LIMIT: 0.02}, **models)
    assert (result, failed) == ("FAIL", {f"distance:{LIMIT}"})
    # A judge that did not score the retained rows shows nothing about them.
    result, checks, failed = judged({LIMIT: 0.2}, retrained=BOTH)
    assert (result, failed) == ("INCONCLUSIVE", {f"distance:{LIMIT}"})
    assert "distance:retained-accuracy" not in checks


@pytest.mark.parametrize(
    "odd",
    [0, "x", [], np.zeros(0), np.zeros((300, 1)), np.zeros((299, 5)), np.zeros((0, 5)),
     np.full((300, 5), np.nan), np.zeros((300, 5), np.float32), np.zeros((300, 5, 1)),
     np.array(3.0)],
)  # fmt: skip
def test_odd_answers_of_the_retrained_model_never_pass_and_never_raise(odd: Any) -> None:
    assert judged({LIMIT: 1.0}, retrained=BOTH, retrained_retained=odd)[0] == "FAIL"
