"""The attempts before the certified one, as the parameter `escalation.attempts` lists them.

It is canonical JSON, for the values of parameters are strings: every attempt with all checks of
its verdict, their intervals and thresholds. It cannot leave the checks of a verdict out, nor
tell a verdict as a reason: whoever compares them with scores would have nothing to compare.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from lethe.certificates import shape
from lethe.certificates.errors import ShapeError
from lethe.certificates.statement import CheckPart
from lethe.records import dataclass

ATTEMPTS = "escalation.attempts"

# No PASS: no attempt that passed is before a certified one.
Verdict = Literal["FAIL", "INCONCLUSIVE", "NONE"]
_JUDGED = re.compile(r"(PASS|FAIL|INCONCLUSIVE) \(.*\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class AttemptPart:
    """An attempt: its method with the settings that differ, and what was found of its model.

    NONE: no verdict is told, and `reason` says why. Else the checks are the reason.
    """

    method: str
    result: Verdict
    reason: str | None
    checks: tuple[CheckPart, ...]


@dataclass(frozen=True, slots=True)
class _Escalation:
    attempts: tuple[AttemptPart, ...]


def write_escalation(attempts: Iterable[AttemptPart]) -> dict[str, str]:
    """Return the parameter that tells of these attempts, in their order.

    Raises ShapeError for an attempt that `read_escalation` would refuse.
    """
    told = {ATTEMPTS: shape.encode(_Escalation(tuple(attempts))).decode()}
    read_escalation(told)
    return told


def read_escalation(parameters: Mapping[str, str]) -> tuple[AttemptPart, ...]:
    """Return the attempts before the certified one, none where nothing was escalated.

    Raises:
        NotCanonicalError: `escalation.attempts` is not RFC 8785 canonical JSON.
        ShapeError: It is of another form; or an attempt has a verdict without a check that did
            not pass, or both reason and checks.
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
    """Return an attempt on one line: with its reason, or the values of what did not pass."""
    if attempt.result == "NONE":
        return f"{attempt.method}: {attempt.reason}"
    failed = "; ".join(f"{one.name}: {one.value}" for one in attempt.checks if not one.passed)
    return f"{attempt.method}: {attempt.result} ({failed})"


def from_line(text: str) -> AttemptPart:
    """Return the attempt without a verdict of a line `METHOD: REASON`, as the log has it."""
    method, _, reason = text.partition(": ")
    return AttemptPart(method, "NONE", reason or None, ())


def _problem(attempt: AttemptPart) -> str | None:
    """Return what is not of the documented form, None where all is."""
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
