"""Recompute a certified verdict, as far as a second party can: offline, from files.

Signatures are not checked here: `lethe certificate verify` does that.
"""

import re
from collections.abc import Mapping
from hashlib import sha256

from lethe.canonical import NotCanonicalError
from lethe.catalogue import CheckSpec, Compared, check_of
from lethe.certificates.errors import ShapeError
from lethe.certificates.evidence import ESCALATION_SCORES, SCORES
from lethe.certificates.statement import (
    AttemptPart,
    CheckPart,
    Predicate,
    read_escalation,
    spelled,
)
from workers.judge.recheck.files import RecheckFiles, compare_files, named_scores, scores_of
from workers.judge.recheck.lines import (
    ATTEMPTS,
    UNLISTED,
    Line,
    Recheck,
    compare,
    line_name,
    skipped,
)
from workers.judge.recheck.refitted import repeat

# Exactly the verdicts by samples have this check, also those with too few rows.
SAMPLES = "samples"
NO_VERDICT = "the certificate states no verdict for it, so there is none to reproduce"
NOT_SAMPLED = (
    "it was not judged by samples: the attempt was destroyed, so its result rests on the "
    "service's word"
)
NO_SCORES = "the certificate names no scores for it: its result rests on the service's word"
DIGEST = re.compile(r"(?:^|sha256 )([0-9a-f]{64})$")
SCORED = "needs the scores (--scores), and the release that judged"
UNNAMED = "needs the scores, and the certificate names none"
UNKNOWN = "is a check that this release does not know"
OF_ROWS = ("rows-after", "rows-before")


def recheck(said: Predicate, given: RecheckFiles) -> Recheck:
    """Return the result of rechecking the given files.

    Never raises because of their content. Raises ModuleNotFoundError if there are scores to
    recompute, and no NumPy or SciPy.
    """
    lines: list[Line] = compare_files(said, given)
    own = scores_of(said, given, SCORES)[-1:]
    judged = False
    if own:
        from workers.judge.recheck.judged import compare_verdict

        found, judged = compare_verdict(said, given, own[0])
        lines += found
    if not judged:
        lines += list_checks(said, given)
    lines += compare_attempts(said, given)
    return Recheck(lines, judged)


def compare_attempts(said: Predicate, given: RecheckFiles) -> list[Line]:
    """Return a line for each reported attempt, and for each scores file that belongs to none.

    The nth scores file of the escalation belongs to the nth attempt that was judged by samples,
    as the certificate lists both in order. If they were matched by content, one file would
    vouch for every attempt with the same report, and an invented attempt would get no line.

    Raises ModuleNotFoundError if there are scores to recompute, and no NumPy or SciPy.
    """
    try:
        attempts = read_escalation(said.method.parameters)
    except (NotCanonicalError, ShapeError) as error:
        return [compare(ATTEMPTS, "an escalation of the documented form", error.detail)]
    listed = named_scores(said)
    # Each judgement draws its own seed: no two have the same file.
    used = {digest for name, digest in listed if name == SCORES}
    unmatched = [digest for name, digest in listed if name == ESCALATION_SCORES]
    files = {sha256(file).hexdigest(): file for file in given.scores}
    lines: list[Line] = []
    for attempt in attempts:
        if attempt.result == "NONE":
            lines.append(skipped(line_name(attempt), spelled(attempt), NO_VERDICT))
        elif not _by_samples(attempt):
            lines.append(skipped(line_name(attempt), spelled(attempt), NOT_SAMPLED))
        elif not unmatched:
            lines.append(skipped(line_name(attempt), spelled(attempt), NO_SCORES))
        else:
            lines += _compare(said, given, attempt, unmatched.pop(0), used, files)
    # A model that passed, and was not certified, is reported as an attempt without a verdict.
    unjudged = any(attempt.result == "NONE" for attempt in attempts)
    for digest in unmatched:
        lines += _compare(said, given, None, digest, used, files, unjudged=unjudged)
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
    files: Mapping[str, bytes],
    *,
    unjudged: bool = False,
) -> list[Line]:
    name, stated = ATTEMPTS, UNLISTED
    if attempt is not None:
        name, stated = line_name(attempt), spelled(attempt)
    if digest in used:
        return [compare(name, stated, f"its scores {digest} are those of another verdict")]
    used.add(digest)
    if digest not in files:
        return [skipped(name, stated, f"its scores {digest} were not given (--scores)")]
    from workers.judge.recheck.judged import compare_attempt, compare_unlisted

    if attempt is not None:
        return compare_attempt(said, given, attempt, files[digest])
    return compare_unlisted(said, given, files[digest], unjudged=unjudged)


def list_checks(said: Predicate, given: RecheckFiles) -> list[Line]:
    """Return a line for each check; one that names a foreign digest differs."""
    evidence = given.parsed
    # A ridge head's rows have their own digests, in the log's entries of its versions.
    ridge = any(check.name.startswith("statistics-") for check in said.checks)
    digests: dict[Compared, str] = {
        "model after": said.model.version_after.digest,
        "model before": said.model.version_before.digest,
    }
    if evidence is not None:  # that it is not evidence is reported elsewhere
        statistics = evidence.statistics
        pairs: dict[Compared, str] = {"rows before": "before", "rows after": "after"}
        digests |= {of: statistics[name] for of, name in pairs.items() if name in statistics}
    lacking = None
    if said.guarantee.class_ == "empirical-approximate":
        lacking = SCORED if any(part.name == SCORES for part in said.evidence) else UNNAMED
    lines = []
    repeated: set[str] = set()  # a certificate could list a costly check 8,000 times
    for check in said.checks:
        spec = check_of(check.name)
        foreign = ridge and check.name in OF_ROWS
        named = None if spec is None or foreign else spec.names
        expected = None if named is None else digests.get(named)
        found = _line(check, spec, expected, lacking)
        again = None
        if found.status == "not recomputed" and check.name not in repeated:
            again = repeat(check, said, given)
            repeated.add(check.name)
        lines.append(again or found)
    return lines


def _line(
    check: CheckPart, spec: CheckSpec | None, expected: str | None, lacking: str | None
) -> Line:
    name = f"{check.number} {check.name}"
    found = DIGEST.search(check.value)
    if check.passed and expected and found and found[1] != expected:
        return compare(name, check.value, expected)
    if spec is None:
        return skipped(name, check.value, UNKNOWN)
    reason = spec.needs
    if lacking is not None and not spec.rests_on_service:
        reason = lacking
    return skipped(name, check.value, reason)
