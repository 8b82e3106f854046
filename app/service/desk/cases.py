"""Cases: show one with its parts and timeline, read its contact address, close it.

A case groups the work for one person in one or all models. It has a part for each model
(`app.service.parts`).
"""

import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlmodel import Session, func, select

from app.ledger.journal import record_model_event
from app.ledger.transaction import Transaction
from app.problems import ConflictError, NotFoundError
from app.reconcile.approval import keys_named
from app.reconcile.case_parts import OPENED, Part, contact_digest, logged_part
from app.reconcile.holds import among, kept_by, stored
from app.reconcile.inputs import HELD_OUT_EVENT as HELD_OUT_ROWS
from app.reconcile.judgement import Event
from app.reconcile.people import PeopleChangedError
from app.reconcile.registrations import KeyRegistration, stored_registrations
from app.schemas.base import format_time
from app.schemas.people import CaseView, ContactView, PartView, TimelineItem
from app.service.context import Services
from app.service.deadlines import confirm_by, days_left, zone_of
from app.service.holds import require_closable, show_all
from app.service.parts import (
    BEFORE,
    ENDED,
    UNLOGGED,
    certified_at,
    consistent,
    find_case,
    is_anothers,
    load,
    parts_of,
)
from app.service.requests import CLOSED, certificate_path, is_overdue
from app.service.review import detail
from app.witnesses.rows import Rows
from lethe import canonical
from models import Case, Certificate, ErasureRequest, LegalHold, RequestEvent
from models.database.types import clock

CONTACT, CLOSED_CASE = "case.contact", "case.closed"


def show(services: Services, ref: str) -> CaseView:
    """Return a case with its parts and timeline.

    Raises NotFoundError: there is none; PeopleChangedError: its parts are not those that the
    log commits to.
    """
    return consistent(services, lambda session: _show(services, session, ref))


def _show(services: Services, session: Session, ref: str) -> CaseView:
    case, parts = load(services, session, ref)
    issued_below = Rows(services.ledger).issued_below(session)
    views = [_view(services, session, case, part, issued_below) for part in parts]
    timeline = [item for part in parts for item in _timeline(session, case, part)]
    holds = _holds(session, case, parts)
    now = clock(session)
    going_on = [
        (part, session.get_one(ErasureRequest, view.request))
        for part, view in zip(parts, views, strict=True)
        if view.outcome == "in progress"
    ]
    opens = [one for part, one in going_on if not is_anothers(session, case, part)]
    # Extensions and pauses move the deadlines of requests only, and those of another's request
    # are not the case's. At the end it has the deadline that held last.
    follows = len(going_on) > len(opens)
    last = None if opens and not follows else _last_due(session, case)
    ends = [(one.due_at, one.paused_at or now) for one in opens]
    ends += [] if last is None else [(last, now)]
    late = follows and last is not None and last < now
    zone = zone_of(services.settings)
    return CaseView.model_validate(
        {
            "ref": case.ref,
            "state": "closed" if case.closed_at else "open" if going_on else "answered",
            "regulation": case.regulation,
            "opened_by": case.opened_by,
            "received_at": case.received_at,
            "due_at": min(due for due, _ in ends),
            "days_left": min(days_left(due, until) for due, until in ends),
            "overdue": late or any(is_overdue(one, now) for one in opens),
            "confirm_by": confirm_by(case.received_at, case.regulation, zone),
            "closed_at": case.closed_at,
            "holds": show_all(holds),
            "parts": views,
            "timeline": sorted(timeline, key=lambda item: item.log_index),
        }
    )


def _last_due(session: Session, case: Case) -> datetime:
    own = select(func.max(ErasureRequest.due_at)).where(ErasureRequest.case_ref == case.ref)
    return max(case.due_at, session.exec(own).one() or case.due_at)


def _holds(session: Session, case: Case, parts: Sequence[Part]) -> list[LegalHold]:
    """Return the unreleased holds that keep a case, or one of its requests."""
    refs = [case.ref, *(one.request_ref for one in parts if one.request_ref is not None)]
    return [one for one in stored(session) if among(session, kept_by(session, [one]), refs)]


def _view(
    services: Services, session: Session, case: Case, part: Part, issued_below: float
) -> PartView:
    outcome, certificate = ENDED.get(part.found), None
    request = None if part.request is None else session.get(ErasureRequest, part.request)
    if part.found == BEFORE and request is not None:
        # Before parts had the kind FOLLOWING, this one was given at the execution.
        outcome = outcome if certified_at(services, session, request.ref) else None
    if outcome is None and request is not None:
        outcome = request.state if request.state in (*CLOSED, "failed") else "in progress"  # type: ignore[assignment]
        if outcome in ("refused", "withdrawn") and is_anothers(session, case, part):
            outcome = "failed"  # whoever asked here was refused nothing, and withdrew nothing
    issued = None if part.request is None else session.get(Certificate, part.request)
    if issued is not None and issued.log_index < issued_below:
        certificate = certificate_path(issued.request_id)
    return PartView(
        model=part.model,
        outcome=outcome or "in progress",
        state=None if request is None else request.state,
        assignee=None if request is None else request.assignee,
        records=part.records,
        request=part.request,
        request_ref=part.request_ref,
        certificate=certificate,
        held_out_removed=part.removed,
        removal_log_index=part.removal_index,
        log_index=part.log_index,
    )


def _timeline(session: Session, case: Case, part: Part) -> list[TimelineItem]:
    items = [
        TimelineItem(
            at=case.received_at,
            model=part.model,
            event=OPENED,
            log_index=part.log_index,
            detail={},
        )
    ]
    if not case.parts:  # a request without a case: its receipt is among the events below
        items.clear()
    if part.removal_index is not None:
        items.append(
            TimelineItem(
                at=case.received_at,
                model=part.model,
                event=HELD_OUT_ROWS,
                log_index=part.removal_index,
                detail={},
            )
        )
    if part.request is None:
        return items
    request = session.get_one(ErasureRequest, part.request)
    query = select(RequestEvent).where(RequestEvent.request_id == part.request)
    events = session.exec(query).all()
    notes = request.notes or {}
    registered = stored_registrations(
        session, keys_named([Event(one.log_index, one.event, one.payload) for one in events])
    )
    return items + [
        TimelineItem(
            at=one.at,
            model=part.model,
            event=one.event,
            log_index=one.log_index,
            detail=detail(one, staff=True)
            | _also_submitted(one, registered)
            | ({"note": notes[key]} if (key := str(one.log_index)) in notes else {}),
        )
        for one in events
    ]


def case_of(services: Services, ref: str) -> str:
    """Return the ref of the case that a request is a part of, or else the ref itself."""
    with services.reading() as session:
        query = select(ErasureRequest.case_ref).where(ErasureRequest.ref == ref)
        return session.exec(query).first() or ref


def _also_submitted(
    event: RequestEvent, registered: Mapping[str, KeyRegistration]
) -> dict[str, str]:
    """Return who else counts as a submitter, for display: approvals go by the log."""
    found = registered.get(str(event.payload.get("registration")))
    by = {
        "registered_by": None if found is None else found.by,
        "issued_by": event.payload.get("issued_by"),
        "imported_by": ", ".join(event.payload.get("imported_by") or ()) or None,
    }
    return {name: str(who) for name, who in by.items() if who is not None}


def open_contact(services: Services, ref: str, operator: str) -> ContactView:
    """Return a case's contact address; who opened it is logged first.

    Raises NotFoundError: there is no such case, or its contact was destroyed or never given;
    PeopleChangedError: it is not the contact, or not the case, that was logged.
    """

    def effect(tx: Transaction) -> ContactView:
        case = find_case(tx.session, ref)
        if case.contact is None:
            raise NotFoundError("the case has no contact address, or it was destroyed")
        contact = contact_digest(case.key or b"", case.contact)
        parts = parts_of(services, case)
        if any(logged_part(services.ledger, part).get("contact") != contact for part in parts):
            raise PeopleChangedError(UNLOGGED)
        said = _act(tx, case, CONTACT, operator)
        index = record_model_event(tx, case.parts[0]["model"], CONTACT, said)
        return ContactView(contact=case.contact, log_index=index)

    return services.ledger.transact(effect)


def close(services: Services, ref: str, operator: str) -> CaseView:
    """Close an answered case: its contact address is destroyed. Closing it again does nothing.

    Raises:
        NotFoundError: There is none.
        ConflictError: A part is still in progress.
        HeldError: A legal hold keeps it, and with it the contact address.
        HoldsChangedError: Table and log disagree on legal holds.
    """
    if show(services, ref).state == "open":
        raise ConflictError("a part of the case is still in progress: see its parts")

    def effect(tx: Transaction) -> None:
        case = find_case(tx.session, ref)
        if case.closed_at is None:
            require_closable(services, tx.session, case)
            said = _act(tx, case, CLOSED_CASE, operator)
            record_model_event(tx, case.parts[0]["model"], CLOSED_CASE, said)
            case.contact, case.closed_at = None, tx.now
            tx.session.flush()

    services.ledger.transact(effect)
    return show(services, ref)


def _act(tx: Transaction, case: Case, event: str, operator: str) -> dict[str, str]:
    """Return the digest of an operator's action, logged under the case's first model."""
    said = {"at": format_time(tx.now), "by": operator, "case": case.ref, "event": event}
    return {"part": hmac.digest(case.key or b"", canonical.encode(said), "sha256").hex()}
