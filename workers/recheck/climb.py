"""The rungs before a certified one: was each rightly held not to have passed?"""

from app.certificates.statement import Predicate
from workers.errors import ArtifactError
from workers.recheck.files import CLIMB, NO_RUNG, Given
from workers.recheck.judged import another_release, rejudge, tied
from workers.recheck.lines import Line, compare, skipped
from workers.verifier.empirical import VERIFIER
from workers.verifier.scores_file import judge_of

SEPARATOR = " | "


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
    # Each is told with its method's name, which no score knows.
    verdicts = [rung.partition(": ")[2] for rung in told.split(SEPARATOR)]
    judge = judge_of(data)
    if judge != VERIFIER.version and (report.result == "PASS" or found not in verdicts):
        # What another version reached is not refuted by what this one reaches.
        return [*lines, skipped("rung before", told, another_release(judge))]
    if report.result == "PASS":
        # Whatever is told of it: a rung that passed is not a rung before a climb.
        return [*lines, compare("rung before", "a verdict that is no PASS", found)]
    certified = found if found in verdicts else told
    return [*lines, compare("rung before", certified, found)]
