"""The climb of a request as the log has it, to who tells of it, to who signs it and to fsck.

A certificate repeats each rung before its own, with all checks. The evidence of those rungs is
destroyed with them, so what can be held against a certificate later is what the log's events
commit to: the method of each execution, each verdict with the digest of its checks and of its
scores, each rung that was skipped or gave way.

Entries of earlier releases lack the method of an execution, the digest of the checks, and what
was skipped for those executed together. Only what they lack is not compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from app.reconcile.judgement import EXECUTED, VERIFIED, Event
from lethe.certificates import shape
from lethe.certificates.climb import RungPart, from_line, read_climb
from lethe.certificates.evidence import CLIMB_SCORES, SCORES, scores_part
from lethe.certificates.statement import CheckPart, EvidencePart

ESCALATED = "request.escalated"
METHOD, CHECKS = "method", "checks"
BY_SAMPLES = "empirical-approximate"
TOGETHER = "executed together with one that did not pass"
# Why a rung has no verdict: another request was judged, or the judgement was not certified.
NOT_JUDGED = "not judged by itself"
CONTRADICTED = "passed, but was not certified: stored data contradicted the log"


@dataclass(frozen=True, slots=True)
class LoggedRung:
    """A rung in the log: an execution and its verdict, or `told`, of which no model came.

    method: with the settings that differ, None where an earlier release logged the execution.
    verdict: what request.verified says of it, None where it was not judged.
    """

    method: str | None = None
    verdict: Mapping[str, Any] | None = None
    told: RungPart | None = None


@dataclass(frozen=True, slots=True)
class LoggedClimb:
    """before: the rungs before the last execution; since: that one, and what came after it.

    whole: no entry lacks what was skipped.
    """

    before: list[LoggedRung] = field(default_factory=list)
    since: list[LoggedRung] = field(default_factory=list)
    whole: bool = True


@dataclass(frozen=True, slots=True)
class _Checks:
    checks: tuple[CheckPart, ...]


def checks_digest(checks: Sequence[CheckPart]) -> str:
    """Return the hex SHA-256 of a verdict's checks, as RFC 8785 JSON `{"checks":[…]}`."""
    return sha256(shape.encode(_Checks(tuple(checks)))).hexdigest()


def logged_climb(events: Sequence[Event]) -> LoggedClimb:
    """Return the climb that a request's events, opened and in their order, tell."""
    before: list[LoggedRung] = []
    current: LoggedRung | None = None
    after: list[LoggedRung] = []
    method: str | None = None
    together, whole = False, True
    for event in events:
        said = event.payload
        if event.event == EXECUTED:
            before += ([] if current is None else [current]) + after
            whole = whole and not (together and METHOD not in said)
            current = LoggedRung(said.get(METHOD, method))
            after, method, together = [], None, False
        elif event.event == VERIFIED and current is not None and current.verdict is None:
            current = LoggedRung(current.method, said)
        elif event.event == ESCALATED and "rung" in said:
            method = said[METHOD]
            lines = list(said.get("skipped", ()))
            if said["result"] == "NONE" and said[CHECKS] == TOGETHER:
                together = True
            elif said["result"] == "NONE":
                lines.append(said[CHECKS])  # a rung that gave way to this one
            after += [LoggedRung(told=from_line(line)) for line in lines]
    return LoggedClimb(before, ([] if current is None else [current]) + after, whole)


def climb_problem(
    events: Sequence[Event], method: str, parameters: Mapping[str, str]
) -> str | None:
    """Return what a certificate's method and parameters tell otherwise than the log, or None.

    Raises:
        NotCanonicalError, ShapeError: The climb cannot be read.
    """
    logged = logged_climb(events)
    own = logged.since[0].method if logged.since else None
    if own is not None and own != parameters.get("rung", method):
        return "the method is not the one that the log has as executed"
    told, rungs = read_climb(parameters), logged.before
    if not logged.whole:  # what was judged must still be told, and nothing else as judged
        told = tuple(rung for rung in told if rung.result != "NONE")
        rungs = [rung for rung in rungs if rung.verdict is not None]
    if len(told) != len(rungs) or not all(map(_is_told, rungs, told)):
        return "the climb is not the one that the log has"
    return None


def _is_told(logged: LoggedRung, told: RungPart) -> bool:
    if logged.told is not None:
        return told == logged.told
    if logged.method is not None and told.method != logged.method:
        return False
    verdict = logged.verdict
    if verdict is None:
        return told == RungPart(told.method, "NONE", NOT_JUDGED, ())
    if verdict["result"] == "PASS" and told.result != "PASS":
        return told == RungPart(told.method, "NONE", CONTRADICTED, ())
    if CHECKS not in verdict:
        return bool(told.result == verdict["result"])
    # Earlier releases told a PASS as such; where the checks are logged, none is a rung before.
    return bool(
        told.result == verdict["result"] != "PASS"
        and told.reason is None
        and checks_digest(told.checks) == verdict[CHECKS]
    )


def score_parts(events: Sequence[Event], claim: str) -> list[EvidencePart]:
    """Return what the certificate of a claim says of all scores of its request, in order.

    events: the request's, as the log has them. The last scores are of the verdict that is
    certified, if it is one by samples; all others are of the rungs before it.
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
    named = [part for part in evidence if part.name in (SCORES, CLIMB_SCORES)]
    if named != score_parts(events, claim):
        return "the scores are not those that the log has"
    return None
