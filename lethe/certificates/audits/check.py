"""Offline verification of an audit report: signature, form, and the arithmetic of its bounds.

The bounds are recomputed from the error counts, and the counts from the pairs' numbers if those
are given: with the standard library alone, by bisection of the binomial tail. No code is shared
with the auditor.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import exp, fsum, isclose, isfinite, lgamma, log, log1p, sqrt

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from lethe import canonical
from lethe.certificates import shape
from lethe.certificates.audits.counts import audit_digest
from lethe.certificates.audits.report import (
    MAX_REPORT,
    AuditPredicate,
    AuditStatement,
    BoundPart,
    parse_report,
    words,
)
from lethe.certificates.bundle import Envelope, check_signature
from lethe.certificates.errors import CertificateError
from lethe.certificates.margins import MarginDistance, distances

CLOSE = 1e-4  # relative: reports spell six digits
HALVINGS = 60
# The API's limits (app/schemas/audits.py): larger values take too long to sum.
FEWEST_PAIRS, MOST_PAIRS = 16, 4096
LEVELS, MOST_DELTA = (0.5, 0.9999), 0.5
LEAST = 1e-6  # the auditor's least standard deviation: docs/method-audits.md
MAX_STATISTICS = 1 << 20  # bytes: three numbers of at most 24 bytes for each pair, and commas


class ReportError(CertificateError):
    """A report whose parts are inconsistent."""

    slug, title = "audit-report-invalid", "The audit report is invalid"


@dataclass(frozen=True, slots=True)
class Checked:
    """A verified report. audit, configuration: the digests that `audit.started` must have.

    margins: KLoM of the pairs' numbers, None if they were not given.
    """

    statement: AuditStatement
    keyid: str
    digest: str
    audit: str
    configuration: str
    margins: MarginDistance | None = None


def check_report(
    data: bytes, issuer: EllipticCurvePublicKey, statistics: bytes | None = None
) -> Checked:
    """Verify a report file and return what it says.

    Checked in this order: the envelope's form, the issuer's signature, the statement's form,
    the counts against the configuration, the bounds, the result and its words. If the file of
    the pairs' numbers is given, then also its digest, form and length, and that its errors
    match the report's. Raises CertificateError or NotCanonicalError; the message names the
    failed check.
    """
    if len(data) > MAX_REPORT:
        raise ReportError(f"a report has at most {MAX_REPORT} bytes")
    envelope = shape.decode(Envelope, data)
    keyid = envelope.signatures[0].keyid
    check_signature(envelope, issuer, keyid)
    statement = parse_report(envelope.payload)
    said = statement.predicate
    levels = _levels(said)
    _check_counts(said)
    _check_bounds(said, *levels)
    margins = None
    if statistics is not None:
        margins = distances(*_checked_statistics(statement, statistics, *levels))
    configuration = hashlib.sha256(canonical.encode(dict(said.configuration))).hexdigest()
    named = audit_digest(said.audit_id, said.started_at)
    digest = hashlib.sha256(data).hexdigest()
    return Checked(statement, keyid, digest, named, configuration, margins)


def epsilon(
    false_positives: int, false_negatives: int, trials: int, confidence: float, delta: float
) -> float:
    """Return the ε that these error counts prove, 0 if none."""
    tail = (1 - confidence) / 2
    fpr, fnr = (upper(count, trials, tail) for count in (false_positives, false_negatives))
    return _epsilon(fpr, fnr, delta)


def _epsilon(fpr: float, fnr: float, delta: float) -> float:
    ratio = max((1 - delta - fnr) / fpr, (1 - delta - fpr) / fnr)
    return log(ratio) if ratio > 1 else 0.0


def upper(count: int, trials: int, tail: float) -> float:
    """Return p with P(X <= count) = tail for X ~ Binomial(trials, p): Clopper–Pearson's."""
    if count == trials:
        return 1.0
    low, high = count / trials, 1.0  # tail < 1/2; _cumulative needs low
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _cumulative(count, trials, middle) > tail:
            low = middle
        else:
            high = middle
    return high


def _cumulative(count: int, trials: int, chance: float) -> float:
    """Return P(X <= count) for count <= trials * chance, summed down until terms vanish."""
    term = exp(
        lgamma(trials + 1)
        - lgamma(count + 1)
        - lgamma(trials - count + 1)
        + count * log(chance)
        + (trials - count) * log1p(-chance)
    )
    odds = (1 - chance) / chance
    total = term
    for k in range(count, 0, -1):
        term *= odds * k / (trials - k + 1)  # factor below 1, decreasing
        total += term
        if term < total * 1e-18:
            break
    return total


def _levels(said: AuditPredicate) -> tuple[float, float]:
    """Return confidence and delta."""
    confidence = _share(said.configuration.get("confidence"))
    delta = _share(said.configuration.get("delta"))
    if not LEVELS[0] <= confidence <= LEVELS[1] or delta > MOST_DELTA:
        raise ReportError("confidence or delta is out of range")
    return confidence, delta


def _check_counts(said: AuditPredicate) -> None:
    if not FEWEST_PAIRS <= said.pairs <= MOST_PAIRS or said.pairs % 2:
        raise ReportError(f"an audit has {FEWEST_PAIRS} to {MOST_PAIRS} pairs, an even number")
    config = said.configuration
    named = config.get("model"), config.get("method"), config.get("pairs")
    if named != (said.model, said.method.id, str(said.pairs)):
        raise ReportError("the configuration names another model, method or number of pairs")
    if said.gave_way > said.pairs or said.versions[0] > said.versions[1]:
        raise ReportError("the pairs that gave way, or the versions, are out of range")
    for part in (said.after, said.before):
        if part.trials != said.pairs - said.pairs // 2:
            raise ReportError("the trials are not the second half of the pairs")
        if max(part.false_positives, part.false_negatives) > part.trials:
            raise ReportError("there are more errors than trials")


def _check_bounds(said: AuditPredicate, confidence: float, delta: float) -> None:
    found = [_checked_bound(part, confidence, delta) for part in (said.after, said.before)]
    _need_close(said.resolution, epsilon(0, 0, said.after.trials, confidence, delta))
    result = "INCONCLUSIVE"
    if found[0] > 0:
        result = "LEAK"
    elif found[1] > 0:
        result = "NOTHING-FOUND"
    if said.result != result:
        raise ReportError("the result is not the one that the bounds give")
    after, before = said.after.epsilon, said.before.epsilon
    if said.statement != words(said.result, after, before, said.resolution):
        raise ReportError("the words are not those of the result")


def _checked_bound(part: BoundPart, confidence: float, delta: float) -> float:
    tail = (1 - confidence) / 2
    _need_close(part.fpr_upper, upper(part.false_positives, part.trials, tail))
    _need_close(part.fnr_upper, upper(part.false_negatives, part.trials, tail))
    found = epsilon(part.false_positives, part.false_negatives, part.trials, confidence, delta)
    _need_close(part.epsilon, found)
    return found


def _need_close(spelled: str, wanted: float) -> None:
    try:
        near = isclose(float(spelled), wanted, rel_tol=CLOSE, abs_tol=CLOSE)
    except ValueError:
        near = False
    if not near:
        raise ReportError("a bound does not follow from the counted errors")


def _share(spelled: str | None) -> float:
    try:
        share = float(spelled or "")
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise ReportError("confidence or delta is no share")
    return share


def _checked_statistics(
    statement: AuditStatement, data: bytes, confidence: float, delta: float
) -> tuple[list[float], list[float], list[float]]:
    """Return the pairs' numbers: before, after, retrained."""
    if hashlib.sha256(data).hexdigest() != statement.subject[0].digest:
        raise ReportError("this is another file than the report's statistics")
    said = statement.predicate
    before, after, retrained = _numbers(data, said.pairs)
    trials = said.after.trials

    @cache
    def limit(count: int) -> float:
        return upper(count, trials, (1 - confidence) / 2)

    @cache
    def proven(false_positives: int, false_negatives: int) -> float:
        return _epsilon(limit(false_positives), limit(false_negatives), delta)

    for part, inside in ((said.after, after), (said.before, before)):
        if _errors(inside, retrained, proven) != (part.false_positives, part.false_negatives):
            raise ReportError("the errors are not those that the statistics give")
    return before, after, retrained


def _numbers(data: bytes, pairs: int) -> tuple[list[float], list[float], list[float]]:
    """Return the log-odds before, after and retrained, each (pairs,) finite."""
    if len(data) > MAX_STATISTICS:
        raise ReportError(f"statistics have at most {MAX_STATISTICS} bytes")
    read = canonical.decode(data)
    try:
        rows = [[float.fromhex(word) for word in row] for row in read["pairs"]]
        fits = read == {
            "kind": "audit-statistics",
            "pairs": [[number.hex() for number in row] for row in rows],
        }
    except (KeyError, TypeError, ValueError, OverflowError):
        fits = False
    if not fits or len(rows) != pairs or {len(row) for row in rows} != {3}:
        raise ReportError("the statistics are not three numbers for each pair")
    # Beyond, squares overflow; log-odds of float32 models are far below.
    if not all(isfinite(value) and abs(value) < 1e100 for row in rows for value in row):
        raise ReportError("a statistic is no number")
    before, after, retrained = ([row[place] for row in rows] for place in range(3))
    return before, after, retrained


def _errors(
    inside: Sequence[float], outside: Sequence[float], proven: Callable[[int, int], float]
) -> tuple[int, int]:
    """Fit a test on the first half; return its false positives and negatives on the second."""
    half = len(inside) // 2
    (mean, deviation), (other, spread) = _normal(inside[:half]), _normal(outside[:half])

    def score(value: float) -> float:
        far, near = (value - other) / spread, (value - mean) / deviation
        return (far * far - near * near) / 2 + log(spread / deviation)

    ins, outs = [score(value) for value in inside], [score(value) for value in outside]
    fit_in, fit_out = sorted(ins[:half]), sorted(outs[:half])
    steps = pairwise(sorted({*fit_in, *fit_out}))

    def worth(threshold: float) -> tuple[float, int]:
        missed = bisect_right(fit_in, threshold)
        flagged = half - bisect_right(fit_out, threshold)
        return proven(flagged, missed), -(missed + flagged)

    # 0, the threshold of the likelihood ratio, is tried first; ties keep the earlier one.
    chosen = max([0.0, *((low + high) / 2 for low, high in steps)], key=worth)
    return sum(one > chosen for one in outs[half:]), sum(one <= chosen for one in ins[half:])


def _normal(values: Sequence[float]) -> tuple[float, float]:
    mean = fsum(values) / len(values)
    variance = fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, max(sqrt(variance), LEAST)
