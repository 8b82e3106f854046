"""A rung before a certified one: was it rightly held not to have passed?

Its model file was destroyed: that its digest was right is the service's word.
"""

from itertools import zip_longest

from lethe.certificates.climb import RungPart, spelled
from lethe.certificates.statement import Predicate
from workers.errors import ArtifactError
from workers.judge.base import Report
from workers.judge.recheck.files import Given
from workers.judge.recheck.judged import another_release, rejudge, tied
from workers.judge.recheck.judged import spelled as all_of
from workers.judge.recheck.lines import RUNG, UNTOLD, Line, compare, skipped
from workers.judge.samples.empirical import VERIFIER
from workers.judge.scores.file import judge_of

REFUTED = "a verdict that is no PASS"
PASSED = "its scores come to PASS, and a rung is told without a verdict: ask why"


def compare_rung(said: Predicate, given: Given, rung: RungPart, data: bytes) -> list[Line]:
    """Return the lines of a rung that is told, and of the scores that it was judged by."""
    try:
        report, lines = _judge(said, given, data)
    except ArtifactError as error:
        return [compare(RUNG, "a scores file", str(error))]
    told, again = spelled(rung), f"{rung.method}: {_found(report)}"
    others = _other_checks(rung, report)
    judge = judge_of(data)
    if judge != VERIFIER.version and (report.result == "PASS" or told != again or others):
        # What another version reached is not refuted by what this one reaches.
        return [*lines, skipped(RUNG, told, another_release(judge))]
    if report.result == "PASS":
        # Whatever is told of it: a rung that passed is not a rung before a climb.
        return [*lines, compare(RUNG, REFUTED, again)]
    return [*lines, *others, compare(RUNG, told, again)]


def compare_untold(said: Predicate, given: Given, data: bytes, *, unjudged: bool) -> list[Line]:
    """Return the lines of scores that no rung is told of.

    unjudged: whether a rung is told without a verdict. One that passed, and was not certified
    because the log had something against it, is told so, and its scores are named.
    """
    try:
        report, lines = _judge(said, given, data)
    except ArtifactError as error:
        return [compare(RUNG, "a scores file", str(error))]
    judge = judge_of(data)
    if judge != VERIFIER.version:
        return [*lines, skipped(RUNG, UNTOLD, another_release(judge))]
    if report.result == "PASS" and unjudged:
        return [*lines, skipped(RUNG, UNTOLD, PASSED)]
    return [*lines, compare(RUNG, UNTOLD, _found(report))]


def _judge(said: Predicate, given: Given, data: bytes) -> tuple[Report, list[Line]]:
    """Return the verdict on scores, and what differs between what they and said are about."""
    claim, rows, report = rejudge(data, None)
    return report, [line for line in tied(said, given, claim, rows) if line.status == "DIFFERS"]


def _found(report: Report) -> str:
    failed = [f"{check.name}: {check.value}" for check in report.checks if not check.passed]
    return f"{report.result} ({'; '.join(failed)})"


def _other_checks(rung: RungPart, report: Report) -> list[Line]:
    """Return a line for each check that is told otherwise."""
    pairs = zip_longest(rung.checks, report.checks)
    lines = [
        compare(f"{RUNG}: {(one or again).name}", all_of(one), all_of(again))
        for one, again in pairs
    ]
    return [line for line in lines if line.status == "DIFFERS"]
