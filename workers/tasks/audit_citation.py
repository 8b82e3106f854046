"""Which audit of its algorithm a certificate may cite: a report that the log commits to."""

import base64
import hashlib

from sqlmodel import Session, col, select

from app import canonical
from app.certificates.audit_report import AuditPredicate, parse_report
from app.certificates.errors import CertificateError
from app.ledger.audit_counts import AUDIT, Counts, count
from app.ledger.model_events import model_events
from app.service.algorithm_audits import digest_of
from app.service.context import Services
from app.vault.errors import NotStoredError, ShreddedError
from models import Audit, Model
from workers.provenance import code_digest
from workers.tasks.audit_report import ROOMS, in_short

ODD = (CertificateError, canonical.NotCanonicalError, LookupError, TypeError, ValueError)


def citation(
    services: Services, session: Session, model: Model, method: str, version: str
) -> dict[str, str]:
    """Return the parameters on audits of a model's method, none if it was never audited.

    They count those that the log has, whatever came of them, and name the newest report of
    the same version and code as the certificate's: what was measured of other code says
    nothing of this. A report of a leak is cited like any other. Everything is said by log
    and report; the table only finds it. Where the log has no such report, none is cited, and
    the parameter `audit.missing` says why.

    Raises SealError where the report's file is damaged; what `model_events` raises.
    """
    size = services.ledger.guard.read().size
    counts = count(model_events(services.ledger, model.ref), method, size)
    cited = _newest(services, session, model, method, version, counts)
    return {**counts.parameters(cited.get(AUDIT)), **cited}


def _newest(
    services: Services,
    session: Session,
    model: Model,
    method: str,
    version: str,
    counts: Counts,
) -> dict[str, str]:
    query = (
        select(Audit)
        .where(
            Audit.model_id == model.id,
            Audit.method == method,
            Audit.method_version == version,
            Audit.code_digest == code_digest(*ROOMS),
            Audit.state == "reported",
        )
        .order_by(col(Audit.reported_at).desc(), col(Audit.id))
        .limit(1)
    )
    audit = session.exec(query).first()
    if audit is None:
        return {}
    try:
        file = services.artifacts.get(session, audit.report_id or "")
    except (NotStoredError, ShreddedError):
        return _missing("the report of an audit is not stored")
    digest = hashlib.sha256(file).hexdigest()
    logged = counts.reports.get(digest)
    if logged is None:
        return _missing("the log has no such report of an audit of this model and method")
    try:
        said = _read(file)
    except ODD:  # the log commits to it, so another version of Lethe wrote it
        return _missing("the report of an audit is of another form")
    told = said.method.id, said.method.version, said.method.code_digest
    if told != (method, version, code_digest(*ROOMS)):
        return _missing("the report of an audit is of another method or code")
    if digest_of(dict(said.configuration)) != logged.config:
        return _missing("the report of an audit is of another configuration than was started")
    return {
        AUDIT: digest,
        "audit.day": said.reported_at.date().isoformat(),
        "audit.found": in_short(said),
    }


def _read(file: bytes) -> AuditPredicate:
    return parse_report(base64.b64decode(canonical.decode(file)["payload"])).predicate


def _missing(why: str) -> dict[str, str]:
    return {"audit.missing": why}
