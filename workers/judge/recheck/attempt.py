"""An attempt before a certified one: was it rightly held not to have passed?

Its model file was destroyed: that its digest was right is the service's word.
"""

from itertools import zip_longest

from lethe.certificates.escalation import AttemptPart, spelled
from lethe.certificates.statement import Predicate
from workers.errors import ArtifactError
from workers.judge.base import Report
from workers.judge.recheck.files import RecheckFiles
from workers.judge.recheck.judged import another_release, rejudge, tied
from workers.judge.recheck.judged import spelled as all_of
from workers.judge.recheck.lines import ATTEMPT, UNTOLD, Line, compare, skipped
from workers.judge.samples.empirical import VERIFIER
from workers.judge.scores.file import judge_of

REFUTED = "a verdict that is no PASS"
PASSED = "its scores come to PASS, and an attempt is told without a verdict: ask why"


def compare_attempt(
    said: Predicate, given: RecheckFiles, attempt: AttemptPart, data: bytes
) -> list[Line]:
    """Return the lines of an attempt that is told, and of the scores that it was judged by."""
    try:
        report, lines = _judge(said, given, data)
    except ArtifactError as error:
        return [compare(ATTEMPT, "a scores file", str(error))]
    told, again = spelled(attempt), f"{attempt.method}: {_found(report)}"
    others = _other_checks(attempt, report)
    judge = judge_of(data)
    if judge != VERIFIER.version and (report.result == "PASS" or told != again or others):
        # What another version reached is not refuted by what this one reaches.
        return [*lines, skipped(ATTEMPT, told, another_release(judge))]
    if report.result == "PASS":
        # Whatever is told of it: an attempt that passed is not an attempt before an escalation.
        return [*lines, compare(ATTEMPT, REFUTED, again)]
    return [*lines, *others, compare(ATTEMPT, told, again)]


def compare_untold(
    said: Predicate, given: RecheckFiles, data: bytes, *, unjudged: bool
) -> list[Line]:
    """Return the lines of scores that no attempt is told of.

    unjudged: whether an attempt is told without a verdict. One that passed, and was not
    certified because the log had something against it, is told so, and its scores are named.
    """
    try:
        report, lines = _judge(said, given, data)
    except ArtifactError as error:
        return [compare(ATTEMPT, "a scores file", str(error))]
    judge = judge_of(data)
    if judge != VERIFIER.version:
        return [*lines, skipped(ATTEMPT, UNTOLD, another_release(judge))]
    if report.result == "PASS" and unjudged:
        return [*lines, skipped(ATTEMPT, UNTOLD, PASSED)]
    return [*lines, compare(ATTEMPT, UNTOLD, _found(report))]


def _judge(said: Predicate, given: RecheckFiles, data: bytes) -> tuple[Report, list[Line]]:
    """Return the verdict on scores, and what differs between what they and said are about."""
    claim, rows, report = rejudge(data, None)
    return report, [line for line in tied(said, given, claim, rows) if line.status == "DIFFERS"]


def _found(report: Report) -> str:
    failed = [f"{check.name}: {check.value}" for check in report.checks if not check.passed]
    return f"{report.result} ({'; '.join(failed)})"


def _other_checks(attempt: AttemptPart, report: Report) -> list[Line]:
    """Return a line for each check that is told otherwise."""
    pairs = zip_longest(attempt.checks, report.checks)
    lines = [
        compare(f"{ATTEMPT}: {(one or again).name}", all_of(one), all_of(again))
        for one, again in pairs
    ]
    return [line for line in lines if line.status == "DIFFERS"]
