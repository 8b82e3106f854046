"""The escalation of a request as the log has it: for wording, signing and fsck.

A certificate repeats each attempt before its own, with all checks. The evidence of those
attempts is destroyed with them, so what can be held against a certificate later is what the
log's events
commit to: the method of each execution, each verdict with the digest of its checks and of its
scores, each attempt that was skipped or gave way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from app.reconcile.judgement import EXECUTED, VERIFIED, Event
from lethe.certificates import shape
from lethe.certificates.escalation import AttemptPart, from_line, read_escalation
from lethe.certificates.evidence import ESCALATION_SCORES, SCORES, scores_part
from lethe.certificates.statement import CheckPart, EvidencePart

ESCALATED = "request.escalated"
METHOD, CHECKS = "method", "checks"
BY_SAMPLES = "empirical-approximate"
TOGETHER = "executed together with one that did not pass"
# Why an attempt has no verdict: another request was judged, or the judgement was not certified.
NOT_JUDGED = "not judged by itself"
CONTRADICTED = "passed, but was not certified: stored data contradicted the log"


@dataclass(frozen=True, slots=True)
class LoggedAttempt:
    """An attempt in the log: an execution and its verdict, or `told`, of which no model came.

    method: with the settings that differ, None of one that was not executed.
    verdict: what request.verified says of it, None where it was not judged.
    """

    method: str | None = None
    verdict: Mapping[str, Any] | None = None
    told: AttemptPart | None = None


@dataclass(frozen=True, slots=True)
class LoggedEscalation:
    """before: the attempts before the last execution; since: that one and what followed."""

    before: list[LoggedAttempt] = field(default_factory=list)
    since: list[LoggedAttempt] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Checks:
    checks: tuple[CheckPart, ...]


def checks_digest(checks: Sequence[CheckPart]) -> str:
    """Return the hex SHA-256 of a verdict's checks, as RFC 8785 JSON `{"checks":[…]}`."""
    return sha256(shape.encode(_Checks(tuple(checks)))).hexdigest()


def logged_escalation(events: Sequence[Event]) -> LoggedEscalation:
    """Return the escalation that a request's events, opened and in their order, tell."""
    before: list[LoggedAttempt] = []
    current: LoggedAttempt | None = None
    after: list[LoggedAttempt] = []
    for event in events:
        said = event.payload
        if event.event == EXECUTED:
            before += ([] if current is None else [current]) + after
            current, after = LoggedAttempt(said.get(METHOD)), []
        elif event.event == VERIFIED and current is not None and current.verdict is None:
            current = LoggedAttempt(current.method, said)
        elif event.event == ESCALATED and "attempt" in said:
            lines = list(said.get("skipped", ()))
            if said["result"] == "NONE" and said[CHECKS] != TOGETHER:
                lines.append(said[CHECKS])  # an attempt that gave way to this one
            after += [LoggedAttempt(told=from_line(line)) for line in lines]
    return LoggedEscalation(before, ([] if current is None else [current]) + after)


def escalation_problem(
    events: Sequence[Event], method: str, parameters: Mapping[str, str]
) -> str | None:
    """Return what a certificate's method and parameters tell otherwise than the log, or None.

    Raises:
        NotCanonicalError, ShapeError: The escalation cannot be read.
    """
    logged = logged_escalation(events)
    if logged.since and logged.since[0].method != parameters.get("attempt", method):
        return "the method is not the one that the log has as executed"
    told, attempts = read_escalation(parameters), logged.before
    if len(told) != len(attempts) or not all(map(_is_told, attempts, told)):
        return "the escalation is not the one that the log has"
    return None


def _is_told(logged: LoggedAttempt, told: AttemptPart) -> bool:
    if logged.told is not None:
        return told == logged.told
    if told.method != logged.method:
        return False
    verdict = logged.verdict
    if verdict is None:
        return told == AttemptPart(told.method, "NONE", NOT_JUDGED, ())
    if verdict["result"] == "PASS":
        return told == AttemptPart(told.method, "NONE", CONTRADICTED, ())
    return bool(
        told.result == verdict["result"]
        and told.reason is None
        and checks_digest(told.checks) == verdict.get(CHECKS)
    )


def score_parts(events: Sequence[Event], claim: str) -> list[EvidencePart]:
    """Return what the certificate of a claim says of all scores of its request, in order.

    events: the request's, as the log has them. The last scores are of the verdict that is
    certified, if it is one by samples; all others are of the attempts before it.
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
    """Return why a certificate names other scores than the log, None if it does not."""
    named = [part for part in evidence if part.name in (SCORES, ESCALATION_SCORES)]
    if named != score_parts(events, claim):
        return "the scores are not those that the log has"
    return None
