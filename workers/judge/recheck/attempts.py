"""The attempts before a certified one: a line for each reported one, and for each scores file.

The nth scores file of the escalation belongs to the nth attempt that was judged by samples, as
the certificate lists both in order. If they were matched by content, one file would vouch for
every attempt with the same report, and an invented attempt would get no line.
"""

from hashlib import sha256

from lethe.canonical import NotCanonicalError
from lethe.certificates.errors import ShapeError
from lethe.certificates.escalation import AttemptPart, read_escalation, spelled
from lethe.certificates.evidence import ESCALATION_SCORES, SCORES
from lethe.certificates.statement import Predicate
from workers.judge.recheck.files import RecheckFiles, named_scores
from workers.judge.recheck.lines import ATTEMPT, UNTOLD, Line, compare, skipped

# Exactly the verdicts by samples have this check, also those with too few rows.
SAMPLES = "samples"
NO_VERDICT = "no verdict of it is told, so there is none to reach again"
NOT_SAMPLED = (
    "it was not judged by samples: the attempt was destroyed, and rests on the service"
)
NO_SCORES = "no scores of it are named: what is told of it rests on the service"


def compare_attempts(said: Predicate, given: RecheckFiles) -> list[Line]:
    """Return a line for each reported attempt, and for each scores file that belongs to none.

    Raises ModuleNotFoundError if there are scores to recompute, and no NumPy or SciPy.
    """
    try:
        attempts = read_escalation(said.method.parameters)
    except (NotCanonicalError, ShapeError) as error:
        return [compare(ATTEMPT, "an escalation of the documented form", error.detail)]
    listed = named_scores(said)
    # Each judgement draws its own seed: no two have the same file.
    used = {digest for name, digest in listed if name == SCORES}
    unmatched = [digest for name, digest in listed if name == ESCALATION_SCORES]
    lines: list[Line] = []
    for attempt in attempts:
        if attempt.result == "NONE":
            lines.append(skipped(ATTEMPT, spelled(attempt), NO_VERDICT))
        elif not _by_samples(attempt):
            lines.append(skipped(ATTEMPT, spelled(attempt), NOT_SAMPLED))
        elif not unmatched:
            lines.append(skipped(ATTEMPT, spelled(attempt), NO_SCORES))
        else:
            lines += _compare(said, given, attempt, unmatched.pop(0), used)
    # A model that passed, and was not certified, is reported as an attempt without a verdict.
    unjudged = any(attempt.result == "NONE" for attempt in attempts)
    for digest in unmatched:
        lines += _compare(said, given, None, digest, used, unjudged=unjudged)
    return lines


def _by_samples(attempt: AttemptPart) -> bool:
    """Return whether a verdict was by samples."""
    return any(check.name == SAMPLES for check in attempt.checks)


def _compare(
    said: Predicate,
    given: RecheckFiles,
    attempt: AttemptPart | None,
    digest: str,
    used: set[str],
    *,
    unjudged: bool = False,
) -> list[Line]:
    told = UNTOLD if attempt is None else spelled(attempt)
    if digest in used:
        return [compare(ATTEMPT, told, f"its scores {digest} are those of another verdict")]
    used.add(digest)
    found = {sha256(file).hexdigest(): file for file in given.scores}
    if digest not in found:
        return [skipped(ATTEMPT, told, f"its scores {digest} were not given (--scores)")]
    from workers.judge.recheck.judged import compare_attempt, compare_untold

    if attempt is not None:
        return compare_attempt(said, given, attempt, found[digest])
    return compare_untold(said, given, found[digest], unjudged=unjudged)
