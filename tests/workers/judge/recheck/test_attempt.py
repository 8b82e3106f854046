"""The attempts before a certified one: each verdict and each check is recomputed."""

from dataclasses import replace

from lethe.certificates.statement import AttemptPart, CheckPart, write_escalation
from tests.workers.judge.empirical_claims import noop, simulated
from tests.workers.judge.recheck.cases import (
    UNMEMORABLE,
    about,
    differing,
    escalated,
    named,
    parts,
)
from workers.judge.recheck.lines import ATTEMPTS
from workers.judge.recheck.run import recheck
from workers.judge.samples.empirical import VERIFIER
from workers.judge.scores.file import decode_scores, encode_scores


def test_the_attempt_before_a_retraining_is_judged_again() -> None:
    for claim in (UNMEMORABLE, noop(simulated(1))):
        case = escalated(*about(claim))
        found = recheck(case.said, case.given())
        assert found.result == "DIGESTS-ONLY"
        assert named(found, "attempt 1").status == "same"
        assert "train on again" in named(found, "3 re-execution").reason


def test_an_attempt_before_that_had_passed_or_failed_otherwise_shows() -> None:
    claim, rows = about(UNMEMORABLE)
    checks = parts(VERIFIER.verify(decode_scores(encode_scores(claim, rows))[0]))
    refuted = AttemptPart(1, "puf-special", "FAIL", None, checks)
    untold = AttemptPart(1, "puf-special", "NONE", "not judged by itself", ())
    for told, differs in ((refuted, "attempt 1"), (untold, ATTEMPTS)):
        case = escalated(claim, rows, **write_escalation([told]))
        assert differing(recheck(case.said, case.given())) == {differs}
    # These scores PASS: there was no reason to escalate.
    claim, rows = about(simulated(1))
    case = escalated(claim, rows, **write_escalation([refuted]))
    assert differing(recheck(case.said, case.given())) == {"attempt 1"}
    claim, rows = about(UNMEMORABLE)
    case = escalated(replace(claim, model_before=("0" * 64, "0" * 64)), rows)
    assert differing(recheck(case.said, case.given())) == {"scores: model before"}


def test_a_check_of_an_attempt_before_that_is_told_otherwise_shows() -> None:
    claim, rows = about(UNMEMORABLE)
    checks = parts(VERIFIER.verify(decode_scores(encode_scores(claim, rows))[0]))
    for changed, differs in ((checks, set()), (lowered(checks), {"attempt 1: samples"})):
        attempt = AttemptPart(1, "puf-special", "INCONCLUSIVE", None, changed)
        case = escalated(claim, rows, **write_escalation([attempt]))
        found = recheck(case.said, case.given())
        assert (differing(found), named(found, "attempt 1").status) == (differs, "same")
    case = escalated(
        claim,
        rows,
        **{"escalation.attempts": write_escalation([attempt])["escalation.attempts"] + " "},
    )
    assert differing(recheck(case.said, case.given())) == {ATTEMPTS}


def lowered(checks: tuple[CheckPart, ...]) -> tuple[CheckPart, ...]:
    """Pretend that fewer rows had been required."""
    return tuple(
        replace(one, threshold="at least 1 pairs") if one.name == "samples" else one
        for one in checks
    )


def test_an_attempt_that_is_told_as_passed_shows() -> None:
    claim, rows = about(UNMEMORABLE)
    told = escalated(claim, rows).said.method.parameters["escalation.attempts"]
    case = escalated(
        claim, rows, **{"escalation.attempts": told.replace("INCONCLUSIVE", "PASS")}
    )
    assert differing(recheck(case.said, case.given())) == {ATTEMPTS}
