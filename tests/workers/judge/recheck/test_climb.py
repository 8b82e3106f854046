"""The rungs before a certified one: each verdict and each check is computed again."""

from dataclasses import replace

from lethe.certificates.climb import RungPart, write_climb
from lethe.certificates.statement import CheckPart
from tests.workers.judge.empirical_claims import noop, simulated
from tests.workers.judge.recheck.cases import (
    UNMEMORABLE,
    about,
    climbed,
    differing,
    named,
    parts,
)
from workers.judge.recheck.run import recheck
from workers.judge.samples.empirical import VERIFIER
from workers.judge.scores.file import decode_scores, encode_scores


def test_the_rung_before_a_retraining_is_judged_again() -> None:
    for claim in (UNMEMORABLE, noop(simulated(1))):
        case = climbed(*about(claim))
        found = recheck(case.said, case.given())
        assert found.result == "DIGESTS-ONLY"
        assert named(found, "rung before").status == "same"
        assert "train on again" in named(found, "3 re-execution").reason


def test_a_rung_before_that_had_passed_or_failed_otherwise_shows() -> None:
    claim, rows = about(UNMEMORABLE)
    checks = parts(VERIFIER.verify(decode_scores(encode_scores(claim, rows))[0]))
    refuted = RungPart("puf-special", "FAIL", None, checks)
    untold = RungPart("puf-special", "NONE", "not judged by itself", ())
    for told in (refuted, untold):
        case = climbed(claim, rows, **write_climb([told]))
        assert differing(recheck(case.said, case.given())) == {"rung before"}
    # These scores come to PASS: there was no reason to climb.
    claim, rows = about(simulated(1))
    case = climbed(claim, rows, **write_climb([refuted]))
    assert differing(recheck(case.said, case.given())) == {"rung before"}
    claim, rows = about(UNMEMORABLE)
    case = climbed(replace(claim, model_before=("0" * 64, "0" * 64)), rows)
    assert differing(recheck(case.said, case.given())) == {"scores: model before"}


def test_a_check_of_a_rung_before_that_is_told_otherwise_shows() -> None:
    claim, rows = about(UNMEMORABLE)
    checks = parts(VERIFIER.verify(decode_scores(encode_scores(claim, rows))[0]))
    for changed, differs in ((checks, set()), (lowered(checks), {"rung before: samples"})):
        rung = RungPart("puf-special", "INCONCLUSIVE", None, changed)
        case = climbed(claim, rows, **write_climb([rung]))
        found = recheck(case.said, case.given())
        assert (differing(found), named(found, "rung before").status) == (differs, "same")
    case = climbed(claim, rows, **{"climb.rungs": write_climb([rung])["climb.rungs"] + " "})
    assert differing(recheck(case.said, case.given())) == {"rung before"}


def lowered(checks: tuple[CheckPart, ...]) -> tuple[CheckPart, ...]:
    """Say that fewer rows had been asked for."""
    return tuple(
        replace(one, threshold="at least 1 pairs") if one.name == "samples" else one
        for one in checks
    )


def test_a_rung_that_is_told_as_passed_shows() -> None:
    claim, rows = about(UNMEMORABLE)
    told = climbed(claim, rows).said.method.parameters["climb.rungs"]
    case = climbed(claim, rows, **{"climb.rungs": told.replace("INCONCLUSIVE", "PASS")})
    assert differing(recheck(case.said, case.given())) == {"rung before"}
