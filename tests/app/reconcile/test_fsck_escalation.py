"""With the issuer's key alone, nobody can certify another escalation than the logged one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.ledger.journal import record_request_event
from app.ledger.sequencer import Ledger
from app.ledger.startup import load_issuer
from app.ledger.transaction import Transaction
from app.reconcile.fsck.run import fsck
from app.reconcile.judgement import CONTRADICTED, NOT_JUDGED, TOGETHER, checks_digest
from app.settings import Settings
from lethe.certificates.evidence import scores_part
from lethe.certificates.statement import AttemptPart, EvidencePart, write_escalation
from models import ErasureRequest
from tests.app.ledger.samples import PREDICATE, certify, submit
from tests.lethe.certificates.escalations import ATTACK, PURGE, SKIPPED

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
FIRST = AttemptPart(1, "puf-special", "FAIL", None, (PURGE, ATTACK))
HONEST = (FIRST, SKIPPED)
SCORES = (scores_part("ab" * 32, certified=False),)
ESCALATION = "the escalation is not the one that the log has"
NUMBER = "an entry states the number of another attempt"
METHOD = "the method is not the one that the log has as executed"
Said = tuple[str, dict[str, Any]]


def executed(method: str) -> Said:
    return ("executed", {"head": "", "method": method})


def verified(result: str, **more: str) -> Said:
    evidence = PREDICATE.retained_set.removal_proof
    return ("verified", {"result": result, "evidence": evidence, "class": "exact", **more})


FAILED = verified("FAIL", checks=checks_digest(FIRST.checks), scores="ab" * 32)
PASSED = verified("PASS", checks=checks_digest(PREDICATE.checks))
LINE = f"{SKIPPED.method}: {SKIPPED.reason}"
UP: Said = (
    "escalated",
    {"result": "FAIL", "checks": "3 yeom:auc", "method": "retrain", "attempt": 2}
    | {"skipped": [LINE]},
)
LOG = (executed("puf-special"), FAILED, UP, executed("retrain"), PASSED)


def findings(
    ledger: Ledger,
    settings: Settings,
    *,
    log: Sequence[Said] = LOG,
    attempts: Sequence[AttemptPart] = HONEST,
    method: str = "retrain",
    scores: Sequence[EvidencePart] = SCORES,
    **parameters: str,
) -> list[str]:
    """Return the findings for a certificate with these attempts and scores."""
    request_id = submit(ledger)

    def effect(tx: Transaction) -> None:
        request = tx.session.get_one(ErasureRequest, request_id)
        for event, said in log:
            record_request_event(tx, request, f"request.{event}", said)

    ledger.transact(effect)
    issuer, _ = load_issuer(settings)
    told = replace(
        PREDICATE.method, id=method, parameters={**write_escalation(attempts), **parameters}
    )
    if not attempts:
        told = replace(told, parameters=parameters)
    evidence = (*PREDICATE.evidence, *scores)
    certify(ledger, issuer, request_id, method=told, evidence=evidence)
    return [finding.detail for finding in fsck(ledger).findings]


def test_the_escalation_that_the_log_has_is_no_finding(
    ledger: Ledger, settings: Settings
) -> None:
    assert findings(ledger, settings) == []


def checked(**changes: Any) -> AttemptPart:
    return replace(FIRST, checks=(PURGE, replace(ATTACK, **changes)))


FORGED: dict[str, tuple[dict[str, Any], str]] = {
    "nothing-told": ({"attempts": ()}, ESCALATION),
    "a-attempt-dropped": ({"attempts": (SKIPPED,)}, ESCALATION),
    "a-skipped-attempt-dropped": ({"attempts": (FIRST,)}, ESCALATION),
    "a-attempt-invented": (
        {"attempts": (*HONEST, replace(FIRST, number=2, method="natural"))},
        ESCALATION,
    ),
    "a-skipped-attempt-invented": (
        {"attempts": (*HONEST, replace(SKIPPED, method="acu"))},
        ESCALATION,
    ),
    "another-order": ({"attempts": (SKIPPED, FIRST)}, ESCALATION),
    "another-result": (
        {"attempts": (replace(FIRST, result="INCONCLUSIVE"), SKIPPED)},
        ESCALATION,
    ),
    "not-judged": (
        {"attempts": (AttemptPart(1, "puf-special", "NONE", NOT_JUDGED, ()), SKIPPED)},
        ESCALATION,
    ),
    "another-value": ({"attempts": (checked(value="0.5001"), SKIPPED)}, ESCALATION),
    "a-check-less": ({"attempts": (replace(FIRST, checks=(ATTACK,)), SKIPPED)}, ESCALATION),
    "another-attempt": ({"attempts": (replace(FIRST, method="hf-kcu"), SKIPPED)}, ESCALATION),
    "another-reason": ({"attempts": (FIRST, replace(SKIPPED, reason="skipped"))}, ESCALATION),
    "a-number-for-what-was-skipped": (
        {"attempts": (FIRST, replace(SKIPPED, number=2))},
        ESCALATION,
    ),
    "another-method": ({"method": "puf-special"}, METHOD),
    "other-settings": ({"method": "retrain(seed=1)"}, METHOD),
    "no-scores": ({"scores": ()}, "the scores are not those that the log has"),
    "other-scores": (
        {"scores": (scores_part("cd" * 32, certified=False),)},
        "the scores are not those that the log has",
    ),
    "scores-of-the-verdict": (
        {"scores": (scores_part("ab" * 32, certified=True),)},
        "the scores are not those that the log has",
    ),
}


@pytest.mark.parametrize("case", FORGED)
def test_another_escalation_than_the_log_has_is_found(
    ledger: Ledger, settings: Settings, case: str
) -> None:
    forged, why = FORGED[case]
    assert findings(ledger, settings, **forged) == [why]


@pytest.mark.parametrize("event", [0, 1, 2, 3, 4])
def test_an_entry_with_another_number_than_its_attempt_is_found(
    ledger: Ledger, settings: Settings, event: int
) -> None:
    numbers = (1, 1, 2, 2, 2)
    stated = [
        (name, {**said, "attempt": n}) for (name, said), n in zip(LOG, numbers, strict=True)
    ]
    assert findings(ledger, settings, log=stated) == []
    name, said = stated[event]
    stated[event] = (name, {**said, "attempt": numbers[event] + 1})
    assert findings(ledger, settings, log=stated) == [NUMBER]


LACKING = {"executed": ("method", [METHOD]), "verified": ("checks", [ESCALATION])}


@pytest.mark.parametrize("event", LACKING)
def test_an_entry_that_lacks_what_is_compared_vouches_for_nothing(
    ledger: Ledger, settings: Settings, event: str
) -> None:
    member, found = LACKING[event]
    log = [(e, {k: v for k, v in said.items() if (e, k) != (event, member)}) for e, said in LOG]
    assert findings(ledger, settings, log=log) == found


def test_a_pass_that_was_not_certified_is_told_without_a_verdict(
    ledger: Ledger, settings: Settings
) -> None:
    waits: list[Said] = [("needs-decision", {}), ("decided", {})]
    log = [executed("retrain"), PASSED, *waits, executed("retrain"), PASSED]
    told = AttemptPart(1, "retrain", "FAIL", None, (ATTACK,))
    contradicted = AttemptPart(1, "retrain", "NONE", CONTRADICTED, ())
    assert findings(ledger, settings, log=log, attempts=(contradicted,), scores=()) == []
    assert findings(ledger, settings, log=log, attempts=(told,), scores=()) == [ESCALATION]


def test_those_executed_together_tell_what_the_other_left_out(
    ledger: Ledger, settings: Settings
) -> None:
    said = {"result": "NONE", "checks": TOGETHER, "attempt": 2, "method": "retrain"}
    gave: Said = ("escalated", {**said, "checks": "natural: NoSafeStep"})
    start, end = executed("puf-special"), (gave, executed("retrain"), PASSED)
    alone = AttemptPart(1, "puf-special", "NONE", NOT_JUDGED, ())
    way = AttemptPart(None, "natural", "NONE", "NoSafeStep", ())
    log = [start, ("escalated", {**said, "skipped": [LINE]}), *end]
    told = (alone, SKIPPED, way)
    assert findings(ledger, settings, log=log, attempts=told, scores=()) == []
    # The log has everything that these omit; nothing else counts.
    before = [start, ("escalated", said), *end]
    assert findings(ledger, settings, log=before, attempts=told, scores=()) == [ESCALATION]
