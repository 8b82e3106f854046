"""An audit report checked offline: signature, form, and the arithmetic of its bounds.

The bounds are reckoned again from the counted errors with the standard library alone, by
bisection of the binomial tail: it shares nothing with the auditor's code.
"""

import hashlib
from dataclasses import dataclass
from math import exp, fsum, isclose, lgamma, log, log1p

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from app import canonical
from app.certificates import shape
from app.certificates.audit_report import (
    MAX_REPORT,
    AuditPredicate,
    AuditStatement,
    BoundPart,
    parse_report,
    words,
)
from app.certificates.dsse import Envelope, check_signature
from app.certificates.errors import CertificateError

CLOSE = 1e-4  # relative: reports spell six digits
HALVINGS = 60


class ReportError(CertificateError):
    """A report whose parts do not follow from one another."""

    slug = "audit-report-invalid"
    title = "The audit report does not hold"


@dataclass(frozen=True, slots=True)
class Checked:
    """A report that holds. configuration: the digest that `audit.started` must have."""

    statement: AuditStatement
    keyid: str
    digest: str
    configuration: str


def check_report(
    data: bytes, issuer: EllipticCurvePublicKey, statistics: bytes | None = None
) -> Checked:
    """Return what a report file says, if it holds.

    Checked in this order: the envelope's form, the issuer's signature, the statement's form,
    the counts against the configuration, the bounds, the result and its words, and the file
    of the pairs' numbers, if it is given, by its digest and its length.

    Raises:
        CertificateError, NotCanonicalError: It does not hold; the message says what.
    """
    if len(data) > MAX_REPORT:
        raise ReportError(f"a report has at most {MAX_REPORT} bytes")
    envelope = shape.decode(Envelope, data)
    keyid = envelope.signatures[0].keyid
    check_signature(envelope, issuer, keyid)
    statement = parse_report(envelope.payload)
    said = statement.predicate
    _check_counts(said)
    _check_bounds(said)
    if statistics is not None:
        _check_statistics(statement, statistics)
    configuration = hashlib.sha256(canonical.encode(dict(said.configuration))).hexdigest()
    return Checked(statement, keyid, hashlib.sha256(data).hexdigest(), configuration)


def epsilon(
    false_positives: int, false_negatives: int, trials: int, confidence: float, delta: float
) -> float:
    """Return the ε that these errors prove, 0 if none."""
    tail = (1 - confidence) / 2
    fpr, fnr = (upper(count, trials, tail) for count in (false_positives, false_negatives))
    ratio = max((1 - delta - fnr) / fpr, (1 - delta - fpr) / fnr)
    return log(ratio) if ratio > 1 else 0.0


def upper(count: int, trials: int, tail: float) -> float:
    """Return p with P(X <= count) = tail for X ~ Binomial(trials, p): Clopper–Pearson's end."""
    if count == trials:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _cumulative(count, trials, middle) > tail:
            low = middle
        else:
            high = middle
    return high


def _cumulative(count: int, trials: int, chance: float) -> float:
    whole = lgamma(trials + 1)
    return fsum(
        exp(
            whole
            - lgamma(k + 1)
            - lgamma(trials - k + 1)
            + k * log(chance)
            + (trials - k) * log1p(-chance)
        )
        for k in range(count + 1)
    )


def _check_counts(said: AuditPredicate) -> None:
    config = said.configuration
    named = config.get("model"), config.get("method"), config.get("pairs")
    if named != (said.model, said.method.id, str(said.pairs)):
        raise ReportError("the configuration is of another model, method or number of pairs")
    if said.gave_way > said.pairs or said.versions[0] > said.versions[1]:
        raise ReportError("the pairs that gave way, or the versions, are out of range")
    for part in (said.after, said.before):
        if part.trials != said.pairs - said.pairs // 2:
            raise ReportError("the trials are not the second half of the pairs")
        if max(part.false_positives, part.false_negatives) > part.trials:
            raise ReportError("there are more errors than trials")


def _check_bounds(said: AuditPredicate) -> None:
    confidence = _share(said.configuration.get("confidence"))
    delta = _share(said.configuration.get("delta"))
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


def _check_statistics(statement: AuditStatement, data: bytes) -> None:
    if hashlib.sha256(data).hexdigest() != statement.subject[0].digest:
        raise ReportError("this is another file than the report's statistics")
