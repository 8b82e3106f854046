"""The rungs climbed before the certified one, as the parameters of a method tell them.

Twice: `climb` is one line for people, and all there was at first; `climb.rungs` is canonical
JSON with every check, its interval and its threshold. The line follows from the JSON, and a
certificate whose two tellings differ is refused. Parameters may have any names, so the
format is the one it was: readers from before `climb.rungs` pass over it.

The JSON cannot leave the checks of a verdict out, nor tell a verdict as a reason: whoever
compares them with scores would have nothing to compare.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, cast

from lethe.certificates import shape
from lethe.certificates.errors import ShapeError
from lethe.certificates.statement import CheckPart

CLIMB, RUNGS = "climb", "climb.rungs"
SEPARATOR = " | "

Verdict = Literal["PASS", "FAIL", "INCONCLUSIVE", "NONE"]
# PASS too, in the line alone: the log had something against a certificate of it, and it was
# made anew.
_JUDGED = re.compile(r"(PASS|FAIL|INCONCLUSIVE) \((.*)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RungPart:
    """A rung: its method with the settings that differ, and what was found of its model.

    NONE: no verdict is told, and `reason` says why. Else the checks are the reason; of
    certificates with the line alone they are not known one by one, and `reason` has the
    values of those that did not pass.
    """

    method: str
    result: Verdict
    reason: str | None
    checks: tuple[CheckPart, ...]


@dataclass(frozen=True, slots=True)
class _Climb:
    rungs: tuple[RungPart, ...]


def write_climb(rungs: Iterable[RungPart]) -> dict[str, str]:
    """Return the parameters that tell of these rungs, in their order.

    The line alone where the JSON cannot carry a rung, as of one that an earlier release told
    in the line: a climb may have begun under that one. Raises ShapeError for a method or a
    check that the format cannot carry.
    """
    climb = _Climb(tuple(rungs))
    told = {CLIMB: SEPARATOR.join(map(spelled, climb.rungs))}
    if any(_problem(rung) for rung in climb.rungs):
        return told
    return {**told, RUNGS: shape.encode(climb).decode()}


def read_climb(parameters: Mapping[str, str]) -> tuple[RungPart, ...]:
    """Return the rungs before the certified one, none where nothing was climbed.

    Raises:
        NotCanonicalError: `climb.rungs` is not RFC 8785 canonical JSON.
        ShapeError: It is of another form, or tells something else than `climb`; or a rung
            has PASS, a verdict without a check that did not pass, or both reason and checks.
    """
    line, told = parameters.get(CLIMB), parameters.get(RUNGS)
    if told is None:
        return () if line is None else tuple(map(from_line, line.split(SEPARATOR)))
    rungs = shape.decode(_Climb, told.encode()).rungs
    for number, rung in enumerate(rungs):
        if (problem := _problem(rung)) is not None:
            raise ShapeError(problem, f"parameters.{RUNGS}.rungs[{number}]")
    if SEPARATOR.join(map(spelled, rungs)) != line:
        raise ShapeError("must tell the climb that the line tells", f"parameters.{RUNGS}")
    return rungs


def spelled(rung: RungPart) -> str:
    """Return a rung as the line of a climb has it: with the values of what did not pass."""
    failed = "; ".join(f"{one.name}: {one.value}" for one in rung.checks if not one.passed)
    said = failed if rung.checks else rung.reason or ""
    if rung.result != "NONE":
        return f"{rung.method}: {rung.result} ({said})"
    return f"{rung.method}: {said}" if said else rung.method


def from_line(text: str) -> RungPart:
    """Return the rung of one part of the line: all that is known of it."""
    method, _, said = text.partition(": ")
    found = _JUDGED.fullmatch(said)
    if found is None:
        return RungPart(method, "NONE", said or None, ())
    return RungPart(method, cast(Verdict, found[1]), found[2] or None, ())


def _problem(rung: RungPart) -> str | None:
    """Return what is not of the form that the JSON has, None where all is."""
    if rung.result == "PASS":
        return "must not have the result PASS: no rung that passed is before a certified one"
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
