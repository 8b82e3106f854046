"""The escalation of a request by the log, for wording, signing and fsck.

A certificate repeats each attempt before its own, with all checks. The evidence of those
attempts is destroyed with them, so later a certificate can only be compared with what the log's
events commit to: the method of each execution, each verdict with the digests of its checks and
scores, and each attempt that was skipped or abandoned.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from app.reconcile.judgement import ESCALATED, EXECUTED, VERIFIED, Event
from lethe.certificates import shape
from lethe.certificates.escalation import AttemptPart, from_line, read_escalation
from lethe.certificates.evidence import ESCALATION_SCORES, SCORES, scores_part
from lethe.certificates.statement import CheckPart, EvidencePart

METHOD, CHECKS = "method", "checks"
BY_SAMPLES = "empirical-approximate"
TOGETHER = "executed together with one that did not pass"
# Reasons for an attempt without a verdict.
NOT_JUDGED = "not judged by itself"
CONTRADICTED = "passed, but was not certified: stored data contradicted the log"


@dataclass(frozen=True, slots=True)
class LoggedAttempt:
    """An attempt in the log: an execution and its verdict, or `part`, if it made no model.

    method: with the settings that differ, None if it was not executed.
    verdict: the payload of request.verified, None if it was not judged.
    """

    method: str | None = None
    verdict: Mapping[str, Any] | None = None
    part: AttemptPart | None = None


@dataclass(frozen=True, slots=True)
class LoggedEscalation:
    """before: the attempts before the last execution; since: that execution and later ones."""

    before: list[LoggedAttempt] = field(default_factory=list)
    since: list[LoggedAttempt] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Checks:
    checks: tuple[CheckPart, ...]


def checks_digest(checks: Sequence[CheckPart]) -> str:
    """Return the hex SHA-256 of a verdict's checks, as RFC 8785 JSON `{"checks":[…]}`."""
    return sha256(shape.encode(_Checks(tuple(checks)))).hexdigest()


def logged_escalation(events: Sequence[Event]) -> LoggedEscalation:
    """Return the escalation of a request from its opened events, in order."""
    before: list[LoggedAttempt] = []
    current: LoggedAttempt | None = None
    after: list[LoggedAttempt] = []
    for event in events:
        payload = event.payload
        if event.event == EXECUTED:
            before += ([] if current is None else [current]) + after
            current, after = LoggedAttempt(payload.get(METHOD)), []
        elif event.event == VERIFIED and current is not None and current.verdict is None:
            current = LoggedAttempt(current.method, payload)
        elif event.event == ESCALATED and "attempt" in payload:
            lines = list(payload.get("skipped", ()))
            if payload["result"] == "NONE" and payload[CHECKS] != TOGETHER:
                lines.append(payload[CHECKS])  # an attempt abandoned for this one
            after += [LoggedAttempt(part=from_line(line)) for line in lines]
    return LoggedEscalation(before, ([] if current is None else [current]) + after)


def escalation_problem(
    events: Sequence[Event], method: str, parameters: Mapping[str, str]
) -> str | None:
    """Return how a certificate's method and parameters differ from the log, None if equal.

    Raises NotCanonicalError or ShapeError: the escalation cannot be read.
    """
    logged = logged_escalation(events)
    if logged.since and logged.since[0].method != parameters.get("attempt", method):
        return "the method is not the one that the log has as executed"
    certified = read_escalation(parameters)
    if len(certified) != len(logged.before) or not all(map(_agrees, logged.before, certified)):
        return "the escalation is not the one that the log has"
    return None


def _agrees(logged: LoggedAttempt, certified: AttemptPart) -> bool:
    if logged.part is not None:
        return certified == logged.part
    if certified.method != logged.method:
        return False
    verdict = logged.verdict
    if verdict is None:
        return certified == AttemptPart(certified.method, "NONE", NOT_JUDGED, ())
    if verdict["result"] == "PASS":
        return certified == AttemptPart(certified.method, "NONE", CONTRADICTED, ())
    return bool(
        certified.result == verdict["result"]
        and certified.reason is None
        and checks_digest(certified.checks) == verdict.get(CHECKS)
    )


def score_parts(events: Sequence[Event], claim: str) -> list[EvidencePart]:
    """Return the evidence parts for all scores of a request, in order.

    events: the request's events by the log. If the claim is one by samples, the last scores
    belong to the certified verdict; all others belong to earlier attempts.
    """
    digests = [event.payload.get(SCORES) for event in events if event.event == VERIFIED]
    own = len(digests) - 1 if claim == BY_SAMPLES else None
    return [
        scores_part(digest, certified=place == own)
        for place, digest in enumerate(digests)
        if digest is not None
    ]


def scores_problem(
    events: Sequence[Event], claim: str, evidence: Sequence[EvidencePart]
) -> str | None:
    """Return a problem if a certificate names other scores than the log, else None."""
    named = [part for part in evidence if part.name in (SCORES, ESCALATION_SCORES)]
    if named != score_parts(events, claim):
        return "the scores are not those that the log has"
    return None
