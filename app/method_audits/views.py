"""Views of method audits: state and result come from the log and the signed reports.

A row holds the progress of an audit. Whoever can write it could hide a leak or delete the
audit. So a row that disagrees with the log has a `problem`, and an audit without a row is shown
as `missing`, under the digest in the log instead of its id.
"""

import time
from dataclasses import dataclass

from sqlmodel import Session, col, func, select

from app.ledger.storage import read_size
from app.method_audits.reports import ReportMissingError, logged_report, stored_report
from app.problems import AuditMissingError, NoReportError, NotFoundError
from app.reconcile.audit_rows import GONE, OTHERWISE, digest_of_row, problem_with
from app.reconcile.model_events import AUDITS, model_events, model_refs
from app.schemas.audits import AuditView
from app.schemas.base import Page
from app.service.context import Services
from lethe.catalogue import METHODS
from lethe.certificates.audits.counts import Logged, logged_audits, method_digest
from lethe.certificates.audits.report import in_short
from models import Audit, AuditPair, Model

PATIENCE_S = 1.0  # for an entry that is committed and not yet signed


@dataclass(frozen=True, slots=True)
class Known:
    """An audit: its row, if there is one, what the log has of it, if it has, and its model."""

    id: str
    ref: str
    row: Audit | None
    logged: Logged | None


def page(services: Services, after: str | None, limit: int) -> Page[AuditView]:
    """Return audits by id."""
    with services.reading() as session:
        audits = [one for one in _known(services, session) if after is None or one.id > after]
        shown = [_view(services, session, one) for one in audits[:limit]]
    more = audits[limit - 1].id if len(audits) > limit else None
    return Page(items=shown, next=more)


def get(services: Services, audit_id: str) -> AuditView:
    """Return one audit. Raises NotFoundError."""
    with services.reading() as session:
        return _view(services, session, _find(services, session, audit_id))


def report(services: Services, audit_id: str) -> bytes:
    """Return a signed report. Raises NotFoundError, NoReportError or AuditMissingError."""
    with services.reading() as session:
        one = _find(services, session, audit_id)
        if one.logged is None or one.logged.state != "reported":
            raise NoReportError("the audit has no report yet", state=_state(one))
        try:
            return stored_report(services, session, one.logged.report)
        except ReportMissingError as why:
            raise AuditMissingError(f"{why}: restore it from a backup") from None


def logged(services: Services, audit: Audit, ref: str) -> Logged | None:
    """Return what the log has of the audit of a row, None if it has none."""
    return logged_audits(model_events(services.ledger, ref, AUDITS)).get(digest_of_row(audit))


def _known(services: Services, session: Session) -> list[Known]:
    """Return all audits of table and log by id, of the log what this snapshot has."""
    size = read_size(session)
    deadline = time.monotonic() + PATIENCE_S
    while services.ledger.guard.read().size < size and time.monotonic() < deadline:
        time.sleep(PATIENCE_S / 20)
    every = {
        (ref, digest): one
        for ref in model_refs(services.ledger)
        for digest, one in logged_audits(
            model_events(services.ledger, ref, AUDITS), size
        ).items()
    }
    query = select(Audit, Model.ref).join(Model, col(Model.id) == col(Audit.model_id))
    audits = [
        Known(row.id, ref, row, every.pop((ref, digest_of_row(row)), None))
        for row, ref in session.exec(query)
    ]
    audits += [Known(one.digest, ref, None, one) for (ref, _), one in every.items()]
    return sorted(audits, key=lambda one: one.id)


def _find(services: Services, session: Session, audit_id: str) -> Known:
    for one in _known(services, session):
        if one.id == audit_id:
            return one
    raise NotFoundError("no audit has this id: GET /v1/audits lists them")


def _state(one: Known) -> str:
    if one.row is None:
        return "missing"
    return "unlogged" if one.logged is None else one.logged.state


def _view(services: Services, session: Session, one: Known) -> AuditView:
    problem = GONE if one.row is None else problem_with(one.row, one.logged)
    shown: dict[str, object] = {}
    if one.logged is not None:
        method = (name for name in METHODS if method_digest(name) == one.logged.method)
        shown = {"method": next(method, None), "config_digest": one.logged.config}
    if one.row is not None:
        shown |= _of_row(session, one.row)
        if problem in (None, OTHERWISE):  # what it was started with is the log's
            shown["config"] = one.row.config
    if one.logged is not None and one.logged.state == "reported":
        try:
            report = logged_report(services, session, one.logged).predicate
        except ReportMissingError as why:
            problem = str(why)
        else:
            shown |= {
                "config": dict(report.configuration),
                "method": report.method.id,
                "result": report.result,
                "found": in_short(report),
                "started_at": report.started_at,
                "reported_at": report.reported_at,
            }
        shown["report_digest"] = one.logged.report
    return AuditView.model_validate(
        {**shown, "id": one.id, "model": one.ref, "state": _state(one), "problem": problem}
    )


def _of_row(session: Session, row: Audit) -> dict[str, object]:
    done = select(func.count()).where(
        AuditPair.audit_id == row.id, col(AuditPair.done_at).is_not(None)
    )
    return {
        "failure": row.failure,
        "every_days": row.every_days,
        "pairs_done": session.exec(done).one(),
        "started_at": row.created_at,
    }
