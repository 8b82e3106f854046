"""Checks that only the service can run: why, and what digests they name all the same."""

import re
from contextlib import suppress

from lethe.certificates.evidence import SCORES, parse_evidence
from lethe.certificates.statement import CheckPart, Predicate
from lethe.errors import LetheError
from workers.judge.recheck.lines import Line, compare, skipped

NAMED = re.compile(r"(?:^|sha256 )([0-9a-f]{64})$")
ROWS = "needs the rows, which stay with the service"
STATISTICS = "needs the statistics, which are sealed with the model"
AGAIN = "needs the retained rows to train on again"
STORED = "rests on the service: nobody else can try to read what it destroyed"
ANSWERED = "rests on the service: the signed answers were destroyed"
REASONS = {
    "data": ROWS,
    "head-bound": STATISTICS,
    "head-certified": STATISTICS,
    "head-correctly-rounded": STATISTICS,
    "masked-rounds-summed": "needs the round's messages, which were destroyed",
    "model-file": "the digest of the file is compared above",
    "posterior": STATISTICS,
    "purge": STORED,
    "re-execution": AGAIN,
    "retained-set": "needs the list of all commitments; the removal proof is checked above",
    "rows-after": ROWS,
    "rows-before": ROWS,
    "silos-answered": ANSWERED,
    "start": AGAIN,
    "statistics-freivalds": ROWS,
    "statistics-recomputed": ROWS,
    "statistics-resummed": "needs the messages, which stay with the service",
}
OTHERWISE = "needs what stays with the service"
SCORED = "needs the scores (--scores), and the release that judged"
UNNAMED = "needs the scores, and the certificate names none"
# What a check that passed says the digest of: of the model file, or of rows or statistics.
MODEL, AFTER, BEFORE = "model", "after", "before"
DIGESTS = {
    "data": AFTER,
    "masked-rounds-summed": AFTER,
    "model-before": "model.before",
    "model-file": MODEL,
    "re-execution": MODEL,
    "rows-after": AFTER,
    "rows-before": BEFORE,
    "statistics-recomputed": AFTER,
    "statistics-resummed": AFTER,
}
OF_ROWS = ("rows-after", "rows-before")


def list_checks(said: Predicate, evidence: bytes) -> list[Line]:
    """Return a line for each check; one that names a foreign digest differs."""
    # A ridge head's rows have digests of their own, in the log's entries of its versions.
    ridge = any(check.name.startswith("statistics-") for check in said.checks)
    named = {k: v for k, v in DIGESTS.items() if not (ridge and k in OF_ROWS)}
    digests = {
        MODEL: said.model.version_after.digest,
        "model.before": said.model.version_before.digest,
    }
    with suppress(LetheError):  # that the evidence is none is told elsewhere
        digests |= parse_evidence(evidence).statistics
    lacking = None
    if said.guarantee.class_ == "empirical-approximate":
        lacking = SCORED if any(part.name == SCORES for part in said.evidence) else UNNAMED
    expected = {name: digests.get(of) for name, of in named.items()}
    return [_line(check, expected.get(check.name), lacking) for check in said.checks]


def _line(check: CheckPart, expected: str | None, lacking: str | None) -> Line:
    name = f"{check.number} {check.name}"
    named = NAMED.search(check.value)
    if check.passed and expected and named and named[1] != expected:
        return compare(name, check.value, expected)
    reason = REASONS.get(check.name, OTHERWISE)
    if lacking is not None and reason not in (STORED, ANSWERED):
        reason = lacking
    return skipped(name, check.value, reason)
