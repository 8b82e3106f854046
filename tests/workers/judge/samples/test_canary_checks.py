"""When a canary decides, what it decides, and its statement about retained rows."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from lethe.certificates.statement import CheckPart
from tests.workers.judge.empirical_claims import POLICY
from tests.workers.judge.samples.canary_claims import (
    HONEST,
    LIMITED,
    STAMPED,
    TARGET,
    answers,
    with_canary,
)
from workers.judge.base import Report
from workers.judge.policy.document import digest
from workers.judge.samples.canary import CanaryClaim
from workers.judge.samples.canary_checks import NO_ROWS
from workers.judge.samples.empirical import VERIFIER
from workers.judge.samples.empirical_claim import EmpiricalClaim


def judged(claim: EmpiricalClaim) -> tuple[Report, set[str], dict[str, CheckPart]]:
    report = VERIFIER.verify(claim)
    failed = {check.name for check in report.checks if not check.passed}
    return report, failed, {check.name: check for check in report.checks}


def test_what_worked_before_and_works_no_more_passes() -> None:
    report, _, named = judged(with_canary(0.9, 0.05))
    assert report.result == "PASS"
    names = [check.name for check in report.checks]
    assert names.index("control:canary") < names.index("yeom:auc") < names.index("canary")
    said, hit = named["canary"], round(0.05 * STAMPED)
    assert said.value == (
        f"{hit / STAMPED:.4f} of {STAMPED} stamped rows, {round(0.9 * STAMPED) / STAMPED:.4f} "
        "before; planted in 40 rows that left and 0 that stay"
    )
    # The interval is Clopper and Pearson's, at the level that the threshold names.
    level = float(str(said.threshold).split("level ")[1].split(",")[0])
    want = stats.binomtest(hit, STAMPED).proportion_ci(1 - level, "exact")
    assert said.interval is not None
    assert [float(end) for end in said.interval] == pytest.approx([want.low, want.high], 1e-4)


def test_what_still_works_is_refuted_by_the_canary_alone() -> None:
    report, failed, _ = judged(with_canary(0.9, 0.9))
    assert (report.result, failed) == ("FAIL", {"canary"})


def test_an_interval_across_the_limit_decides_nothing() -> None:
    report, failed, _ = judged(with_canary(0.9, 0.29))
    assert (report.result, failed) == ("INCONCLUSIVE", {"canary"})


def test_a_trigger_that_never_worked_proves_nothing() -> None:
    plain = (HONEST.pool_before.argmax(axis=1) == TARGET)[HONEST.pool_labels != TARGET].mean()
    assert plain < 0.3
    # Not above the limit; above it by a point, but not by the whole interval; never.
    for before in (0.25, 0.31, 0.0):
        report, failed, _ = judged(with_canary(before, 0.0))
        assert report.result == "INCONCLUSIVE"
        assert "control:canary" in failed
        assert failed <= {"control:canary", "control:canary-trigger"}


def test_rows_that_go_to_the_target_without_the_trigger_show_no_trigger() -> None:
    """Otherwise a model that always answers with the target would seem to have a backdoor."""
    always = replace(HONEST, pool_before=np.tile(np.eye(5)[TARGET], (600, 1)))
    report, failed, named = judged(with_canary(1.0, 0.0, always))
    assert "control:canary" not in failed
    assert "control:canary-trigger" in failed
    assert named["control:canary-trigger"].value.startswith("adds 0.0000: 1.0000 without")
    assert report.result != "PASS"


def test_where_nothing_planted_leaves_the_canary_is_reported_and_decides_nothing() -> None:
    report, _, named = judged(with_canary(0.9, 0.9, leaving=0, staying=40))
    assert report.result == "PASS"
    assert "control:canary" not in named
    assert named["canary"].value.endswith("40 that stay: nothing of it was to be unlearned")
    assert named["canary"].threshold is None


def test_where_others_planted_it_too_a_trigger_that_works_refutes_nothing() -> None:
    report, failed, named = judged(with_canary(0.9, 0.9, staying=3))
    assert (report.result, failed) == ("INCONCLUSIVE", {"canary"})
    assert named["canary"].interval is not None
    assert named["canary"].interval[0] == "0"
    assert judged(with_canary(0.9, 0.05, staying=3))[0].result == "PASS"


def test_without_a_limit_it_is_reported_and_without_a_canary_a_limit_is_not_met() -> None:
    report, _, named = judged(with_canary(0.9, 0.9, policy=POLICY))
    assert report.result == "PASS"
    assert named["canary"].value.startswith("0.9")
    bare = replace(HONEST, policy=LIMITED, policy_digest=digest(LIMITED))
    report, failed, _ = judged(bare)
    assert (report.result, failed) == ("INCONCLUSIVE", {"canary"})


def test_where_all_unseen_rows_are_of_the_target_nothing_is_measured() -> None:
    nobody = CanaryClaim(TARGET, answers(0.0)[:0], answers(0.0)[:0], 40, 0)
    alike = replace(
        with_canary(0.9, 0.05),
        pool_labels=np.full(600, TARGET),
        forget_labels=np.full(500, TARGET),
        canary=nobody,
    )
    report, failed, named = judged(alike)
    assert report.result != "PASS"
    assert "canary" in failed
    assert named["canary"].value == NO_ROWS


def test_logits_of_fewer_rows_than_were_to_be_stamped_are_refuted() -> None:
    short = with_canary(0.9, 0.05)
    assert short.canary is not None
    canary = replace(short.canary, before=answers(0.9)[1:], after=answers(0.0)[1:])
    report, failed, named = judged(replace(short, canary=canary))
    assert (report.result, failed) == ("FAIL", {"samples"})
    assert named["samples"].value == "the claim cannot be evaluated: RefusedError"
