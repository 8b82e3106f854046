"""The rungs climbed before the certified one, as the parameter `climb.rungs` tells them.

It is canonical JSON, for the values of parameters are strings: every rung with all checks of
its verdict, their intervals and thresholds. It cannot leave the checks of a verdict out, nor
tell a verdict as a reason: whoever compares them with scores would have nothing to compare.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from lethe.certificates import shape
from lethe.certificates.errors import ShapeError
from lethe.certificates.statement import CheckPart

RUNGS = "climb.rungs"

# No PASS: no rung that passed is before a certified one.
Verdict = Literal["FAIL", "INCONCLUSIVE", "NONE"]
_JUDGED = re.compile(r"(PASS|FAIL|INCONCLUSIVE) \(.*\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RungPart:
    """A rung: its method with the settings that differ, and what was found of its model.

    NONE: no verdict is told, and `reason` says why. Else the checks are the reason.
    """

    method: str
    result: Verdict
    reason: str | None
    checks: tuple[CheckPart, ...]


@dataclass(frozen=True, slots=True)
class _Climb:
    rungs: tuple[RungPart, ...]


def write_climb(rungs: Iterable[RungPart]) -> dict[str, str]:
    """Return the parameter that tells of these rungs, in their order.

    Raises ShapeError for a rung that `read_climb` would refuse.
    """
    told = {RUNGS: shape.encode(_Climb(tuple(rungs))).decode()}
    read_climb(told)
    return told


def read_climb(parameters: Mapping[str, str]) -> tuple[RungPart, ...]:
    """Return the rungs before the certified one, none where nothing was climbed.

    Raises:
        NotCanonicalError: `climb.rungs` is not RFC 8785 canonical JSON.
        ShapeError: It is of another form; or a rung has a verdict without a check that did
            not pass, or both reason and checks.
    """
    told = parameters.get(RUNGS)
    if told is None:
        return ()
    rungs = shape.decode(_Climb, told.encode()).rungs
    for number, rung in enumerate(rungs):
        if (problem := _problem(rung)) is not None:
            raise ShapeError(problem, f"parameters.{RUNGS}.rungs[{number}]")
    return rungs


def spelled(rung: RungPart) -> str:
    """Return a rung on one line: with its reason, or the values of what did not pass."""
    if rung.result == "NONE":
        return f"{rung.method}: {rung.reason}"
    failed = "; ".join(f"{one.name}: {one.value}" for one in rung.checks if not one.passed)
    return f"{rung.method}: {rung.result} ({failed})"


def from_line(text: str) -> RungPart:
    """Return the rung without a verdict of a line `METHOD: REASON`, as the log has it."""
    method, _, reason = text.partition(": ")
    return RungPart(method, "NONE", reason or None, ())


def _problem(rung: RungPart) -> str | None:
    """Return what is not of the documented form, None where all is."""
    if rung.result == "NONE":
        if rung.checks or not rung.reason:
            return "must have a reason and no checks: its result is NONE"
        if _JUDGED.fullmatch(rung.reason):
            return "must not tell a verdict as the reason why there is none"
        return None
    if rung.reason is not None or not rung.checks:
        return "must have checks and no reason: a verdict was reached"
    if all(check.passed for check in rung.checks):
        return "must have a check that did not pass: its result is no PASS"
    return None
