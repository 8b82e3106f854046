"""Scores judged by another version of the verifier: correct, or reported as such."""

from dataclasses import replace
from functools import cache
from hashlib import sha256

import pytest

from lethe.certificates.evidence import scores_part
from tests.workers.judge.empirical_claims import World, noop, simulated
from tests.workers.judge.recheck.cases import Case, about, certified, escalated
from workers.arrays import decode_tensors, encode_tensors
from workers.errors import ArtifactError
from workers.judge.recheck.lines import Line, Recheck
from workers.judge.recheck.run import recheck
from workers.judge.samples.empirical_claim import EmpiricalClaim
from workers.judge.scores.file import decode_scores, encode_scores, judge_of

UNMEMORABLE = simulated(3, World(forget=(0.0, 0.0), retained=(0.0, 0.0)))


def as_written_by(case: Case, judge: str, *, certified: bool) -> Case:
    """Return the certificate of the same scores in a file that names another version."""
    file = encode_scores(*decode_scores(case.scores), judge)
    listed = scores_part(sha256(file).hexdigest(), certified=certified)
    said = replace(case.said, evidence=(case.said.evidence[0], listed))
    return replace(case, said=said, scores=file)


def attempt_of(case: Case) -> tuple[Recheck, Line]:
    found = recheck(case.said, case.given())
    (line,) = (line for line in found.lines if line.name == "attempt 1")
    return found, line


def told(*claims: EmpiricalClaim) -> list[Case]:
    """Return certificates of an attempt whose checks are those of a first claim."""
    claim, rows = about(UNMEMORABLE)
    parameters = escalated(claim, rows).said.method.parameters
    attempts = {name: parameters[name] for name in ("escalation.attempts", "attempt")}
    found = []
    for one in claims:
        claim, rows = about(one)
        found.append(escalated(claim, rows, **attempts))
    return found


def test_an_attempt_that_another_version_judged_is_judged_again() -> None:
    (case,) = told(UNMEMORABLE)
    old = as_written_by(case, "2", certified=False)
    assert judge_of(old.scores) == "2"
    assert attempt_of(old)[1].status == "same"


@cache
def otherwise() -> list[Case]:
    """Return attempts that this version refutes as reported; it would pass the last one."""
    (altered,) = told(UNMEMORABLE)
    method = altered.said.method
    parameters = {n: v.replace("0.5073", "0.5074") for n, v in method.parameters.items()}
    assert parameters != method.parameters
    said = replace(altered.said, method=replace(method, parameters=parameters))
    return [replace(altered, said=said), *told(noop(simulated(1)), simulated(1))]


def test_an_attempt_that_this_version_judged_otherwise_is_refuted() -> None:
    for case in otherwise():
        assert attempt_of(case)[1].status == "DIFFERS"


@pytest.mark.parametrize("judge", ["2", "5"])
def test_an_attempt_that_another_version_judged_otherwise_is_told_as_such(judge: str) -> None:
    for case in otherwise():
        found, line = attempt_of(as_written_by(case, judge, certified=False))
        assert (found.result, line.status) == ("DIGESTS-ONLY", "not recomputed")
        assert "install the one that issued" in line.reason
        assert f" {judge}" in line.reason


def test_what_an_attempt_is_of_is_compared_whoever_judged() -> None:
    claim, rows = about(UNMEMORABLE)
    case = escalated(replace(claim, model_before=("0" * 64, "0" * 64)), rows)
    found, _ = attempt_of(as_written_by(case, "2", certified=False))
    assert {line.name for line in found.lines if line.status == "DIFFERS"} == {
        "scores: model before"
    }


def test_a_certificate_of_version_2_is_told_as_such() -> None:
    case = as_written_by(certified(*about(simulated(1))), "2", certified=True)
    said = replace(case.said, verifier=replace(case.said.verifier, version="2"))
    found = recheck(said, case.given())
    (line,) = (line for line in found.lines if line.name == "verifier")
    assert "judged as version 2, and this release judges as version 4" in line.reason


def test_a_certificate_of_another_version_than_its_scores_shows() -> None:
    case = as_written_by(certified(*about(simulated(1))), "2", certified=True)
    found = recheck(case.said, case.given())
    differing = {line.name for line in found.lines if line.status == "DIFFERS"}
    assert "scores: judged as" in differing


@pytest.mark.parametrize("judge", [None, 3, "", "3 ", "three", ["3"]])
def test_a_version_has_one_spelling(judge: object) -> None:
    arrays, said = decode_tensors(encode_scores(*about(UNMEMORABLE)))
    with pytest.raises(ArtifactError):
        decode_scores(encode_tensors(arrays, {**said, "judge": judge}))
