"""Checks without scores: repeated if files suffice, else the reason and named digest."""

import re

from lethe.catalogue import CheckSpec, Compared, check_of
from lethe.certificates.evidence import SCORES
from lethe.certificates.statement import CheckPart, Predicate
from workers.judge.recheck.files import RecheckFiles
from workers.judge.recheck.lines import Line, compare, skipped
from workers.judge.recheck.refitted import repeat

DIGEST = re.compile(r"(?:^|sha256 )([0-9a-f]{64})$")
SCORED = "needs the scores (--scores), and the release that judged"
UNNAMED = "needs the scores, and the certificate names none"
UNKNOWN = "is a check that this release does not know"
OF_ROWS = ("rows-after", "rows-before")


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
    for check in said.checks:
        spec = check_of(check.name)
        foreign = ridge and check.name in OF_ROWS
        named = None if spec is None or foreign else spec.names
        expected = None if named is None else digests.get(named)
        found = _line(check, spec, expected, lacking)
        again = repeat(check, said, given) if found.status == "not recomputed" else None
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
