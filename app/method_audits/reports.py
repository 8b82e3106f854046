"""Reports of audits, found by the digest that the log has, whatever row points at them."""

import base64

from sqlmodel import Session, select

from app.reconcile.audit_rows import NO_REPORT, REPORT
from app.service.context import Services
from app.vault.errors import NotStoredError, SealError, ShreddedError
from lethe import canonical
from lethe.certificates.audits.counts import Logged, audit_digest
from lethe.certificates.audits.report import AuditStatement, parse_report
from lethe.certificates.errors import CertificateError
from models import Artifact

MOST = 8  # artifacts of one digest that are tried
OF_ANOTHER = "the report logged for this audit is invalid, or belongs to another audit"
_ODD = (CertificateError, canonical.NotCanonicalError, LookupError, TypeError, ValueError)


class ReportMissingError(Exception):
    """The report that the log names cannot be had; the text says why."""


def stored_report(services: Services, session: Session, digest: str) -> bytes:
    """Return the report file of a digest (hex SHA-256). Raises ReportMissingError."""
    query = select(Artifact.id).where(Artifact.digest == digest, Artifact.kind == REPORT)
    for found in session.exec(query.limit(MOST)):
        try:
            return services.artifacts.get(session, found)  # checks the digest
        except (NotStoredError, ShreddedError, SealError):
            continue
    raise ReportMissingError(NO_REPORT)


def read_report(file: bytes) -> AuditStatement:
    """Return what a report file says; proves nothing yet. Raises ReportMissingError."""
    try:
        return parse_report(base64.b64decode(canonical.decode(file)["payload"]))
    except _ODD:
        raise ReportMissingError(OF_ANOTHER) from None


def logged_report(services: Services, session: Session, one: Logged) -> AuditStatement:
    """Return the report that the log names of an audit. Raises ReportMissingError."""
    report = read_report(stored_report(services, session, one.report))
    about = report.predicate
    if audit_digest(about.audit_id, about.started_at) != one.digest:
        raise ReportMissingError(OF_ANOTHER)
    return report
