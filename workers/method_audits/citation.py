"""Which audit of its algorithm a certificate may cite: the newest report in the log."""

from sqlmodel import Session, select

from app.ledger.journal import digest_of
from app.ledger.storage import read_size
from app.method_audits.reports import OF_ANOTHER, ReportMissingError, logged_report
from app.reconcile.audit_rows import digest_of_row
from app.reconcile.model_events import AUDITS, model_events
from app.service.context import Services
from lethe.certificates.audits.counts import AUDIT, MISSING, Counts, count
from lethe.certificates.audits.report import in_short
from models import Audit, Model

DELETED = "audits that the log has and the database lacks: {}"


def citation(
    services: Services, session: Session, model: Model, method: str, version: str, code: str
) -> dict[str, str]:
    """Return the parameters on audits of a model's method, none if it was never audited.

    code: the digest of the executed code, as the certificate names it.

    The counts are of all audits in the log, whatever their result; the newest report of that
    code is named, since measurements of other code do not apply. A report of a leak is cited
    like any other. All facts come from log and report; rows are only counted. If a row or that
    report is missing, the parameter `audit.missing` says so, and no older report is cited in
    its place.

    Raises what `model_events` raises.
    """
    # Only entries that this snapshot of the tables can have.
    size = min(services.ledger.guard.read().size, read_size(session))
    counts = count(model_events(services.ledger, model.ref, AUDITS), method, size)
    cited, missing = _newest(services, session, (method, version, code), counts)
    rows = session.exec(select(Audit).where(Audit.model_id == model.id))
    known = {digest_of_row(row) for row in rows}
    deleted = sum(one.digest not in known for one in counts.audits)
    if deleted:
        missing = [*missing, DELETED.format(deleted)]
    told = {MISSING: "; ".join(missing)} if missing else {}
    return {**counts.parameters(cited.get(AUDIT)), **cited, **told}


def _newest(
    services: Services, session: Session, ran: tuple[str, str, str], counts: Counts
) -> tuple[dict[str, str], list[str]]:
    """Return the parameters about the newest report of some code, or why there are none.

    ran: id and version of the method, and the digest of its code.
    """
    newest = counts.newest(ran[2])
    if newest is None:
        return {}, []
    try:
        said = logged_report(services, session, newest).predicate
    except ReportMissingError as why:
        return {}, [str(why)]
    told = said.method.id, said.method.version, said.method.code_digest
    if told != ran or digest_of(dict(said.configuration)) != newest.config:
        return {}, [OF_ANOTHER]
    cited = {
        AUDIT: newest.report,
        "audit.day": said.reported_at.date().isoformat(),
        "audit.found": in_short(said),
    }
    return cited, []
