"""Each reported attempt has a line, and each scores file belongs to one attempt, in order."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import count
from typing import Any

import pytest

from lethe.certificates.evidence import scores_part
from lethe.certificates.statement import AttemptPart, CheckPart, spelled, write_escalation
from tests.workers.judge.empirical_claims import simulated
from tests.workers.judge.recheck.cases import (
    UNMEMORABLE,
    Case,
    about,
    differing,
    escalated,
    parts,
)
from workers.judge.recheck.judged import PASSED
from workers.judge.recheck.lines import ATTEMPTS as EARLIER
from workers.judge.recheck.lines import Line
from workers.judge.recheck.run import NO_SCORES, NO_VERDICT, NOT_SAMPLED, recheck
from workers.judge.samples.empirical import VERIFIER
from workers.judge.scores.file import decode_scores, encode_scores

CLAIM, ROWS = about(UNMEMORABLE)
FILES = [encode_scores(replace(CLAIM, seed=bytes([n]) * 32), ROWS) for n in (1, 2)]
SKIPPED = AttemptPart(None, "hf-kcu", "NONE", "skipped, over the budget", ())
TRAINED = CheckPart(1, "re-execution", "value", "of another file", None, "equal", False)


def attempt_of(method: str, file: bytes) -> AttemptPart:
    report = VERIFIER.verify(decode_scores(file)[0])
    assert report.result == "INCONCLUSIVE"
    return AttemptPart(1, method, "INCONCLUSIVE", None, parts(report))


ATTEMPTS = [attempt_of("puf-special", FILES[0]), attempt_of("hf-kcu", FILES[1])]
ABOUT = ("attempt ", "no attempt", EARLIER)


def told_as(attempts: Sequence[AttemptPart]) -> dict[str, str]:
    """Return the parameters for these attempts, numbered in this order."""
    return write_escalation(numbered(attempts))


def numbered(attempts: Sequence[AttemptPart]) -> list[AttemptPart]:
    """Return attempts with numbers in this order; what made none keeps having none."""
    numbers = count(1)
    return [
        one if one.number is None else replace(one, number=next(numbers)) for one in attempts
    ]


def case_of(told: dict[str, str], *files: bytes) -> Case:
    """Return the certificate of a retraining with this escalation and these scores."""
    case = escalated(CLAIM, ROWS, **told)
    named = [scores_part(sha256(file).hexdigest(), certified=False) for file in files]
    return replace(case, said=replace(case.said, evidence=(case.said.evidence[0], *named)))


def lines(told: dict[str, str], *files: bytes, given: list[bytes] | None = None) -> list[Line]:
    case = case_of(told, *files)
    found = recheck(case.said, case.given(scores=list(files) if given is None else given))
    assert all(name.startswith(ABOUT) for name in differing(found))
    return [one for one in found.lines if one.name.startswith(ABOUT) and ":" not in one.name]


def status(found: list[Line]) -> list[str]:
    return [line.status for line in found]


def test_the_nth_scores_are_of_the_nth_attempt_that_was_judged_by_samples() -> None:
    retrain = AttemptPart(1, "retrain", "FAIL", None, (TRAINED,))
    told = [ATTEMPTS[0], SKIPPED, ATTEMPTS[1], retrain]
    # They are found by their digest, in whatever order they are given.
    found = lines(told_as(told), *FILES, given=FILES[::-1])
    assert [line.certified for line in found] == [spelled(attempt) for attempt in told]
    assert status(found) == ["same", "not recomputed", "same", "not recomputed"]
    assert [line.reason for line in found] == ["", NO_VERDICT, "", NOT_SAMPLED]
    assert status(lines(told_as(ATTEMPTS[::-1]), *FILES)) == ["DIFFERS", "DIFFERS"]


def test_scores_of_the_first_attempt_say_nothing_of_a_second() -> None:
    twice = [ATTEMPTS[0], replace(ATTEMPTS[0], method="hf-kcu")]
    first, second = lines(told_as(twice), FILES[0])
    assert (first.status, second.status) == ("same", "not recomputed")
    assert second.reason == NO_SCORES
    # Nor do they if they are named again.
    first, second = lines(told_as(twice), FILES[0], FILES[0])
    assert (first.status, second.status) == ("same", "DIFFERS")


def test_an_invented_attempt_is_not_passed_over() -> None:
    fake = AttemptPart(
        1, "hf-kcu", "FAIL", None, (CheckPart(1, "yeom:auc", "value", "1", None, "x", False),)
    )
    found = lines(told_as([ATTEMPTS[0], fake]), FILES[0])
    assert status(found) == ["same", "not recomputed"]
    # With the checks of a verdict by samples it takes the place of the judged one.
    assert status(lines(told_as(ATTEMPTS[::-1]), FILES[0])) == [
        "DIFFERS",
        "not recomputed",
    ]


def test_an_attempt_without_scores_has_a_line() -> None:
    (line,) = lines(told_as(ATTEMPTS[:1]))
    assert (line.status, line.certified) == ("not recomputed", spelled(ATTEMPTS[0]))
    assert line.reason == NO_SCORES


def test_scores_that_were_not_given_are_told_of_their_own_attempt() -> None:
    first, second = lines(told_as(ATTEMPTS), *FILES, given=FILES[1:])
    assert (first.status, second.status) == ("not recomputed", "same")
    assert sha256(FILES[0]).hexdigest() in first.reason


def test_scores_are_hashed_once_for_all_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate could list thousands of attempts, and scores have gigabytes."""
    hashed: list[bytes] = []

    def counted(data: bytes) -> Any:
        hashed.append(data)
        return sha256(data)

    monkeypatch.setattr("workers.judge.recheck.run.sha256", counted)
    assert status(lines(told_as(ATTEMPTS), *FILES)) == ["same", "same"]
    assert len(hashed) == len(FILES)


def test_a_verdict_that_is_told_as_none_shows() -> None:
    said = spelled(ATTEMPTS[0]).partition(": ")[2]
    attempt = (
        f'{{"checks":[],"method":"puf-special","number":"1","reason":"{said}","result":"NONE"}}'
    )
    told = {"escalation.attempts": f'{{"attempts":[{attempt}]}}', "attempt": "2"}
    for files in (FILES[:1], []):
        (line,) = lines(told, *files)
        assert line.status == "DIFFERS"
        assert "must not tell a verdict" in line.recomputed


def test_scores_of_no_attempt_show_unless_a_model_passed_and_is_told_as_not_judged() -> None:
    withheld = lines(told_as(ATTEMPTS[:1]), *FILES)
    assert status(withheld) == ["same", "DIFFERS"]
    assert status(lines(told_as([SKIPPED]), FILES[0])) == ["not recomputed", "DIFFERS"]
    claim, rows = about(simulated(1))
    case = escalated(claim, rows, **told_as([replace(SKIPPED, reason="not certified")]))
    found = recheck(case.said, case.given())
    assert differing(found) == set()
    assert [line.reason for line in found.lines if line.name.startswith(ABOUT)] == [
        NO_VERDICT,
        PASSED,
    ]
    case = escalated(
        claim, rows, **told_as([AttemptPart(1, "retrain", "FAIL", None, (TRAINED,))])
    )
    assert differing(recheck(case.said, case.given())) == {EARLIER}


def test_scores_of_no_attempt_that_another_version_judged_are_not_refuted() -> None:
    file = encode_scores(CLAIM, ROWS, "5")
    found = lines(told_as([SKIPPED]), file)
    assert status(found) == ["not recomputed"] * 2
    assert "install the one that issued" in found[1].reason


def test_what_was_certified_as_asked_for_has_no_line_of_an_attempt() -> None:
    case = escalated(CLAIM, ROWS)
    parameters = {"policy": CLAIM.policy_digest}
    method = replace(case.said.method, parameters=parameters)
    said = replace(case.said, method=method, evidence=case.said.evidence[:1])
    assert not [
        one for one in recheck(said, case.given(scores=[])).lines if "attempt" in one.name
    ]
