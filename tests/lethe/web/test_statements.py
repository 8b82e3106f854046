"""What an issuer signs and must not: statements, escalations and evidence, by both verifiers."""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from lethe import canonical
from lethe.certificates import shape
from lethe.certificates.bundle import parse_bundle
from lethe.certificates.statement import ATTEMPT, ATTEMPTS, AttemptPart
from tests.lethe.certificates import test_escalation, test_evidence
from tests.lethe.certificates.build import Office
from tests.lethe.certificates.escalations import SKIPPED, UNDECIDED
from tests.lethe.changes import put
from tests.lethe.web.second import needs_node, verify_both

pytestmark = needs_node
STATEMENT: dict[str, Any] = json.loads(parse_bundle(Office().certify().bundle).payload)
Change = Callable[[dict[str, Any]], None]


def step_that_fails(statement: dict[str, Any], evidence: bytes | None = None) -> int | None:
    """Return which step refuses a statement that was signed and logged; None if none does."""
    office = Office()
    failed = verify_both(
        office.seal(canonical.encode(statement)),
        log=office.log.verifier,
        issuer=office.key.public_key(),
        evidence=evidence,
    ).failed
    return None if failed is None else failed.number


def told(attempts: list[Any]) -> dict[str, Any]:
    """Return the statement with these attempts before the certified one, which is the next."""
    statement = deepcopy(STATEMENT)
    text = canonical.encode({"attempts": attempts}).decode()
    numbered = sum(one["number"] is not None for one in attempts)
    statement["predicate"]["method"]["parameters"] |= {
        ATTEMPTS: text,
        ATTEMPT: str(numbered + 1),
    }
    return statement


@pytest.mark.parametrize("name", test_escalation.NOT_OF_THE_FORM)
def test_an_escalation_of_another_form(name: str) -> None:
    attempt = test_escalation.NOT_OF_THE_FORM[name]
    assert step_that_fails(told([shape.write(SKIPPED), shape.write(attempt)])) == 7


@pytest.mark.parametrize("verdict", ["PASS", "FAIL", "INCONCLUSIVE"])
def test_a_verdict_that_is_told_as_a_reason(verdict: str) -> None:
    attempt = replace(SKIPPED, reason=f"{verdict} (a\nb)")
    assert step_that_fails(told([shape.write(attempt)])) == 7


def test_an_escalation_of_the_documented_form() -> None:
    attempts: list[AttemptPart] = [UNDECIDED, SKIPPED, replace(SKIPPED, reason="PASS (")]
    assert step_that_fails(told([shape.write(one) for one in attempts])) is None


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"attempts": []}', "\u2028", '{"attempts":[]}']
)
def test_an_escalation_of_other_text(text: str) -> None:
    statement = told([])
    statement["predicate"]["method"]["parameters"][ATTEMPTS] = text
    assert step_that_fails(statement) == (None if text == '{"attempts":[]}' else 7)


@pytest.mark.parametrize("number", ["1", "3", "02", " 2", "", None])
def test_a_certified_attempt_of_another_number(number: str | None) -> None:
    statement = told([shape.write(UNDECIDED), shape.write(SKIPPED)])
    assert step_that_fails(statement) is None
    parameters = statement["predicate"]["method"]["parameters"]
    if number is None:
        del parameters[ATTEMPT]
    else:
        parameters[ATTEMPT] = number
    assert step_that_fails(statement) == 7


def test_a_certified_number_without_an_escalation() -> None:
    statement = deepcopy(STATEMENT)
    statement["predicate"]["method"]["parameters"][ATTEMPT] = "1"
    assert step_that_fails(statement) == 7


BAD = {name: change for name, (change, *_) in test_evidence.BAD.items()} | {
    "another root of the records": put("removal", "recordsRoot", value="A" * 43 + "=")
}


@pytest.mark.parametrize("name", BAD)
def test_evidence_that_does_not_hold(name: str) -> None:
    evidence, _ = test_evidence.certified(BAD[name])
    statement = deepcopy(STATEMENT)
    digest = {"sha256": sha256(evidence).hexdigest()}
    statement["predicate"]["retainedSet"]["removalProof"] = digest
    statement["predicate"]["evidence"][0]["digest"] = digest
    assert step_that_fails(statement, evidence) == 9


def model_before_as_subject(statement: dict[str, Any]) -> None:
    before = statement["predicate"]["model"]["versionBefore"]["digest"]
    statement["subject"].append({"name": "before", "digest": before})


P = "predicate"
CONTRADICTIONS: dict[str, tuple[Change, int | None]] = {
    "no subject": (put("subject", value=[]), 7),
    "a subject twice": (lambda s: s["subject"].append(s["subject"][0]), 7),
    "the model before is a subject": (model_before_as_subject, 7),
    "no record": (put(P, "scope", "records", value="0"), 7),
    "more than int64": (put(P, "scope", "records", value=str(2**63)), 7),
    "checks from 2": (put(P, "checks", 0, "number", value="2"), 7),
    "PASS without checks": (put(P, "checks", value=[]), 7),
    "FAIL without checks": (lambda s: s[P].update(checks=[], result="FAIL"), None),
    "no removal proof": (put(P, "evidence", value=[]), 7),
    "a 29th of February": (put(P, "completedAt", value="2023-02-29T00:00:00Z"), 7),
    "a leap day": (put(P, "completedAt", value="2024-02-29T00:00:00Z"), None),
    "a leap day of 2000": (put(P, "completedAt", value="2000-02-29T00:00:00Z"), None),
    "no leap day in 1900": (put(P, "completedAt", value="1900-02-29T00:00:00Z"), 7),
    "hour 24": (put(P, "completedAt", value="2024-02-28T24:00:00Z"), 7),
    "a leap second": (put(P, "completedAt", value="2016-12-31T23:59:60Z"), 7),
    "year 0": (put(P, "completedAt", value="0000-01-01T00:00:00Z"), 7),
    "an object's own name": (put(P, "method", "parameters", "__proto__", value="x"), None),
    "an empty name": (put(P, "method", "parameters", "", value="x"), 7),
    "names joined by a comma": (
        lambda s: s[P].update(model={"ref,versionBefore,versionAfter": "x"}),
        7,
    ),
    "a toString": (put("toString", value="x"), 7),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_statement_that_contradicts_itself(name: str) -> None:
    change, number = CONTRADICTIONS[name]
    statement = deepcopy(STATEMENT)
    change(statement)
    assert step_that_fails(statement) == number
