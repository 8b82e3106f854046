"""The attempts before the certified one, as the parameter `escalation.attempts` lists them.

It is canonical JSON, because parameter values are strings: every attempt with all checks of its
verdict, their intervals and thresholds. The format rejects a verdict without checks and a
verdict given as a reason: a reader could not compare those with the scores.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from lethe.certificates import shape
from lethe.certificates.errors import ShapeError
from lethe.certificates.statement import CheckPart
from lethe.records import dataclass

ATTEMPTS = "escalation.attempts"

# No PASS: an attempt that passed is the certified one.
Verdict = Literal["FAIL", "INCONCLUSIVE", "NONE"]
_JUDGED = re.compile(r"(PASS|FAIL|INCONCLUSIVE) \(.*\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class AttemptPart:
    """An attempt: its method with non-default settings, and the verdict on its model.

    NONE: no verdict is given, and `reason` says why. Otherwise the checks are the reason.
    """

    method: str
    result: Verdict
    reason: str | None
    checks: tuple[CheckPart, ...]


@dataclass(frozen=True, slots=True)
class _Escalation:
    attempts: tuple[AttemptPart, ...]


def write_escalation(attempts: Iterable[AttemptPart]) -> dict[str, str]:
    """Return the parameter that lists these attempts, in their order.

    Raises ShapeError for an attempt that `read_escalation` would refuse.
    """
    told = {ATTEMPTS: shape.encode(_Escalation(tuple(attempts))).decode()}
    read_escalation(told)
    return told


def read_escalation(parameters: Mapping[str, str]) -> tuple[AttemptPart, ...]:
    """Return the attempts before the certified one, empty if nothing was escalated.

    Raises NotCanonicalError: `escalation.attempts` is not RFC 8785 canonical JSON; ShapeError:
    the form is wrong, an attempt has a verdict but no failed check, or it has both reason and
    checks.
    """
    told = parameters.get(ATTEMPTS)
    if told is None:
        return ()
    attempts = shape.decode(_Escalation, told.encode()).attempts
    for number, attempt in enumerate(attempts):
        if (problem := _problem(attempt)) is not None:
            raise ShapeError(problem, f"parameters.{ATTEMPTS}.attempts[{number}]")
    return attempts


def spelled(attempt: AttemptPart) -> str:
    """Return an attempt as one line: with its reason, or the values of its failed checks."""
    if attempt.result == "NONE":
        return f"{attempt.method}: {attempt.reason}"
    failed = "; ".join(f"{one.name}: {one.value}" for one in attempt.checks if not one.passed)
    return f"{attempt.method}: {attempt.result} ({failed})"


def from_line(text: str) -> AttemptPart:
    """Parse a log line `METHOD: REASON` into an attempt without a verdict."""
    method, _, reason = text.partition(": ")
    return AttemptPart(method, "NONE", reason or None, ())


def _problem(attempt: AttemptPart) -> str | None:
    """Return what is wrong with the attempt's form, None if nothing is."""
    if attempt.result == "NONE":
        if attempt.checks or not attempt.reason:
            return "must have a reason and no checks: its result is NONE"
        if _JUDGED.fullmatch(attempt.reason):
            return "must not tell a verdict as the reason why there is none"
        return None
    if attempt.reason is not None or not attempt.checks:
        return "must have checks and no reason: a verdict was reached"
    if all(check.passed for check in attempt.checks):
        return "must have a check that did not pass: its result is no PASS"
    return None
