"""The rungs before the certified one, each with its verdict, and what did not pass and why.

Where a certificate has the checks of a rung, they are told one by one: what was found, on how
many rows and with which power, and what was asked for. Older ones have a line for each rung.
"""

from collections.abc import Iterator

from lethe.certificates.climb import RungPart, read_climb
from lethe.certificates.statement import CheckPart, Predicate
from lethe.cli.check_words import asked_for, not_run

SIZES = "samples"  # the check that says how many rows there were, and the power they gave
# What a reader wants to know of checks that passed: on what, and whose signatures there were.
SAID = {SIZES: "tested on", "silos-answered": "signed"}
INDENT = "  "

Lines = Iterator[tuple[str, str]]  # a label, and what stands beside it


def climb_lines(said: Predicate) -> Lines:
    """Yield the lines on how a request came to the certified method, none if by asking.

    Raises NotCanonicalError or ShapeError where the climb is not told in one way.
    """
    rungs = read_climb(said.method.parameters)
    for number, rung in enumerate(rungs, 1):
        yield f"rung {number}", f"{rung.method}: {_verdict(rung)}"
        yield from (("", INDENT + text) for text in _checks(rung))
    if rungs:
        told = said.method.parameters.get("rung", said.method.id)
        checks = len(said.checks)
        yield (
            f"rung {len(rungs) + 1}",
            f"{told}: {said.result}, the certified one ({checks} checks)",
        )


def _verdict(rung: RungPart) -> str:
    """Return what became of a rung, and why it gave way to the next."""
    if rung.result == "NONE":
        return rung.reason or "no verdict"
    if rung.result == "PASS":
        return "PASS, and not certified: the log had something against it"
    if rung.result == "FAIL":
        why = "a check refuted it"
    elif _too_few(rung):
        why = "there were too few rows to tell whether it had erased enough"
    else:
        why = "the checks could not tell whether it had erased enough"
    return f"{rung.result}, so it was not certified: {why}"


def _too_few(rung: RungPart) -> bool:
    if rung.checks:
        return any(one.name == SIZES and not one.passed for one in rung.checks)
    return any(part.startswith(f"{SIZES}:") for part in (rung.reason or "").split("; "))


def _checks(rung: RungPart) -> Iterator[str]:
    if not rung.checks:
        if rung.result != "NONE":
            yield from (rung.reason or "").split("; ")
        return
    for check in rung.checks:
        if check.passed:
            continue
        if (why := not_run(check)) is not None:
            yield f"not run  {check.name}: {why}"
            continue
        yield f"not shown  {check.name}"
        yield from (INDENT + text for text in _told(check))
    passed = [check for check in rung.checks if check.passed]
    for check in passed:
        if check.name in SAID:
            yield f"{SAID[check.name]}  {check.value}"
    if passed:
        yield f"passed  {', '.join(check.name for check in passed)}"


def _told(check: CheckPart) -> Iterator[str]:
    """Yield what was found, a line for each part of it, and what was asked for."""
    interval = "" if check.interval is None else f", interval {' to '.join(check.interval)}"
    first, *rest = check.value.split("; ")
    yield f"found   {first}{interval}"
    yield from (f"        {part}" for part in rest)
    if check.threshold is not None:
        yield f"wanted  {check.threshold}"
    if (words := asked_for(check.name)) is not None:
        yield f"        that is: {words}"
