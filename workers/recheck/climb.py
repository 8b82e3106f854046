"""The rungs before a certified one: was each rightly held not to have passed?"""

from itertools import zip_longest

from app.canonical import NotCanonicalError
from app.certificates.climb import RungPart, read_climb, spelled
from app.certificates.errors import ShapeError
from app.certificates.statement import Predicate
from workers.errors import ArtifactError
from workers.recheck.files import CLIMB, NO_RUNG, Given
from workers.recheck.judged import another_release, rejudge, tied
from workers.recheck.judged import spelled as all_of
from workers.recheck.lines import Line, compare, skipped
from workers.verifier.base import Report
from workers.verifier.empirical import VERIFIER
from workers.verifier.scores_file import judge_of


def compare_rung(said: Predicate, given: Given, data: bytes) -> list[Line]:
    """Return the lines of a rung before, of which the certificate says what had failed.

    Its model file was destroyed: that its digest was right is the service's word.
    """
    try:
        claim, rows, report = rejudge(data, None)
    except ArtifactError as error:
        return [compare("rung before", "a scores file", str(error))]
    lines = [line for line in tied(said, given, claim, rows) if line.status == "DIFFERS"]
    failed = [f"{check.name}: {check.value}" for check in report.checks if not check.passed]
    found = f"{report.result} ({'; '.join(failed)})"
    told = said.method.parameters.get(CLIMB, NO_RUNG)
    try:
        rungs = read_climb(said.method.parameters)
    except (NotCanonicalError, ShapeError) as error:
        return [*lines, compare("rung before", "a climb told in one way", error.detail)]
    # Each is told with its method's name, which no score knows.
    alike = [rung for rung in rungs if spelled(rung).partition(": ")[2] == found]
    others = _other_checks(alike[0], report) if alike else []
    judge = judge_of(data)
    if judge != VERIFIER.version and (report.result == "PASS" or not alike or others):
        # What another version reached is not refuted by what this one reaches.
        return [*lines, skipped("rung before", told, another_release(judge))]
    if report.result == "PASS":
        # Whatever is told of it: a rung that passed is not a rung before a climb.
        return [*lines, compare("rung before", "a verdict that is no PASS", found)]
    if not alike:
        return [*lines, compare("rung before", told, found)]
    return [*lines, *others, compare("rung before", found, found)]


def _other_checks(rung: RungPart, report: Report) -> list[Line]:
    """Return a line for each check that is told otherwise, none of a climb told in one line."""
    pairs = zip_longest(rung.checks, report.checks) if rung.checks else ()
    lines = [
        compare(f"rung before: {(one or again).name}", all_of(one), all_of(again))
        for one, again in pairs
    ]
    return [line for line in lines if line.status == "DIFFERS"]
