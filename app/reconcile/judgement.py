"""The logged judgement that a certificate needs, for the signer and for fsck.

Tables name a job's evidence, verdict and stage, and anyone with write access could name
another request's. The log's entries commit to what was judged, at the time of the judgement.

A certificate repeats each attempt before its own, with all checks. The evidence of those
attempts is destroyed with them, so later a certificate can only be compared with what the log's
events commit to: the method of each execution, each verdict with the digests of its checks and
scores, and each method that was skipped or abandoned.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import pairwise
from typing import Any

from sqlmodel import Session

from app.ledger.journal import opening
from app.ledger.storage import read_size
from lethe.certificates import shape
from lethe.certificates.evidence import ESCALATION_SCORES, SCORES, scores_part
from lethe.certificates.statement import (
    NAMED,
    AttemptPart,
    CheckPart,
    EvidencePart,
    certified_number,
    from_line,
    read_escalation,
)
from lethe.log.entries import CommitmentError, EntryError, Leaf, check_commitment
from models import ErasureRequest, RequestEvent
from models.database.session import read_by_id, reading

RECEIVED, EXECUTED, VERIFIED = "request.received", "request.executed", "request.verified"
ESCALATED, DECIDED, CERTIFIED = "request.escalated", "request.decided", "request.certified"
JUDGING = "model.judging"  # of a model: a judgement by samples, which spends alpha
DUE = (RECEIVED, "request.extended", "request.resumed")  # each sets the deadline
# Events allowed between a judgement and its certificate: waiting for a key or a disk, and an
# officer's notes and assignments, and cases that follow the request.
WAITS = (
    "request.needs-decision",
    DECIDED,
    "request.extended",
    "request.noted",
    "request.assigned",
    "request.followed",
)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a request, opened from the log's entry at `index`."""

    index: int
    event: str
    payload: Mapping[str, Any]


def opened(
    session: Session, request: ErasureRequest, leaves: Sequence[tuple[int, Leaf]]
) -> list[Event]:
    """Open a request's `leaves`, (log index, leaf), and return its events.

    The log is read after the session's snapshot began, so the openings of the last leaves may
    be newer than the snapshot. An opening that fits is authentic, whenever it is read.

    Raises CommitmentError: the stored openings do not open all leaves; EntryError: the stored
    key or event does not have the shape that a leaf commits to.
    """
    indexes = [index for index, _ in leaves]
    stored = {event.log_index: event for event in read_by_id(session, RequestEvent, indexes)}
    missing = [index for index in indexes if index not in stored]
    if missing and missing[-1] >= (size := read_size(session)):
        with Session(reading(session.get_bind().engine)) as later:
            newer = [index for index in missing if index >= size]
            stored |= {one.log_index: one for one in read_by_id(later, RequestEvent, newer)}
    found = []
    for index, leaf in leaves:
        event = stored.get(index)
        if event is None or leaf.event is None or leaf.commitment is None:
            raise CommitmentError("the opening of an event is missing")
        if event.event != leaf.event:  # readers use the column
            raise CommitmentError("the stored event has another name than the one in the log")
        document = opening(request.ref, leaf.event, event.at, event.payload)
        check_commitment(bytes(request.event_key), document, leaf.commitment)
        found.append(Event(index, leaf.event, event.payload))
    return found


def deadline(events: Sequence[Event]) -> str:
    """Return the last deadline in a request's opened events, which begin with its receipt."""
    return [str(one.payload["due_at"]) for one in events if one.event in DUE][-1]


def is_executed(leaves: Sequence[tuple[int, Leaf]]) -> bool:
    """Return whether a request was executed by its leaves: then its rows are erased."""
    return any(leaf.event == EXECUTED for _, leaf in leaves)


def is_unproven(
    session: Session, request: ErasureRequest, leaves: Sequence[tuple[int, Leaf]]
) -> bool:
    """Return whether a request was executed and its last execution has no PASS in the log.

    A request whose leaves cannot be opened is unproven too.
    """
    if not is_executed(leaves):
        return False
    try:
        events = opened(session, request, leaves)
    except (CommitmentError, EntryError):
        return True
    last = [event for event in events if event.event in (EXECUTED, VERIFIED)][-1]
    return last.payload.get("result") != "PASS"


def is_judged(events: Sequence[str]) -> bool:
    """Return whether a verdict follows the last execution among a request's events."""
    last = [event for event in events if event in (EXECUTED, VERIFIED)][-1:]
    return last == [VERIFIED]


def _judged_twice(events: Sequence[Event]) -> bool:
    """Return whether an execution has two verdicts.

    An honest worker never logs two: it logs and records a verdict together.
    """
    verdicts = [event.event for event in events if event.event in (EXECUTED, VERIFIED)]
    return any(pair == (VERIFIED, VERIFIED) for pair in pairwise(verdicts))


def contradiction(events: Sequence[Event], evidence: str, claim: str) -> str | None:
    """Return why a request's events allow no certificate, None if they do.

    Each execution has at most one judgement. The last must be PASS for this evidence (hex
    SHA-256) and this claim, and only events in WAITS may follow it.
    """
    places = [place for place, event in enumerate(events) if event.event == VERIFIED]
    if not places:
        return "the log has no judgement of this request"
    judged = events[places[-1]].payload
    if judged.get("result") != "PASS":
        return "the last judgement of this request in the log is no PASS"
    if judged.get("evidence") != evidence:
        return "the evidence is not that of the request's last judgement in the log"
    if judged.get("class") != claim:
        return "the last judgement in the log has another guarantee class"
    if any(event.event not in WAITS for event in events[places[-1] + 1 :]):
        return "the log has more of this request after its last judgement"
    if _judged_twice(events):
        return "the log has two judgements of one execution of this request"
    return None


METHOD, CHECKS = "method", "checks"
ATTEMPT = "attempt"  # of executed and verified: its number; of escalated: that of the next
BY_SAMPLES = "empirical-approximate"
TOGETHER = "executed together with one that did not pass"
# Reasons for an attempt without a verdict.
NOT_JUDGED = "not judged by itself"
CONTRADICTED = "passed, but was not certified: stored data contradicted the log"


@dataclass(frozen=True, slots=True)
class LoggedAttempt:
    """An attempt in the log: an execution and its verdict, or `part`, if it made no model.

    number: as `AttemptPart` has it, counted from the executions; None if it was not executed.
    method: with the settings that differ, None if it was not executed.
    verdict: the payload of request.verified, None if it was not judged.
    """

    number: int | None = None
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
    number = 0
    for event in events:
        payload = event.payload
        if event.event == EXECUTED:
            before += ([] if current is None else [current]) + after
            number += 1
            current, after = LoggedAttempt(number, payload.get(METHOD)), []
        elif event.event == VERIFIED and current is not None and current.verdict is None:
            current = replace(current, verdict=payload)
        elif event.event == ESCALATED and ATTEMPT in payload:
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
    if logged.since and logged.since[0].method != parameters.get(NAMED, method):
        return "the method is not the one that the log has as executed"
    certified = read_escalation(parameters)
    if len(certified) != len(logged.before) or not all(map(_agrees, logged.before, certified)):
        return "the escalation is not the one that the log has"
    if logged.since and logged.since[0].number != certified_number(parameters):
        return "the number of the attempt is not the one that the log has"
    if not _are_numbered(events):
        return "an entry states the number of another attempt"
    return None


def _are_numbered(events: Sequence[Event]) -> bool:
    """Return whether each number in a request's events is that of its attempt."""
    number = 0
    for event in events:
        if event.event not in (EXECUTED, VERIFIED, ESCALATED):
            continue
        number += event.event == EXECUTED
        expected = number + (event.event == ESCALATED)  # which names the one that follows
        if event.payload.get(ATTEMPT, expected) != expected:
            return False
    return True


def _agrees(logged: LoggedAttempt, certified: AttemptPart) -> bool:
    if logged.part is not None:
        return certified == logged.part
    if (certified.number, certified.method) != (logged.number, logged.method):
        return False
    number, method, verdict = certified.number, certified.method, logged.verdict
    if verdict is None:
        return certified == AttemptPart(number, method, "NONE", NOT_JUDGED, ())
    if verdict["result"] == "PASS":
        return certified == AttemptPart(number, method, "NONE", CONTRADICTED, ())
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
