"""Compares items that the tables have as due with the log, before they are destroyed.

Anyone with write access to the database can move an open request or case into the past, and
the end of its retention would be signed. So an item is destroyed only if its own log entries
say that it was due, and that no hold keeps it; any other is left, and reported.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlmodel import Session

from app.reconcile.case_parts import contact_digest, logged_part, logged_parts
from app.reconcile.holds import Held, is_released
from app.reconcile.logged_requests import LoggedRequest, logged_requests, own_requests
from app.reconcile.model_events import hold_events
from app.reconcile.retention import ended_refs
from app.reconcile.undecided import is_undecided
from app.service.context import Services
from models import Artifact, Case, ErasureRequest, Verification


def confirmed(
    services: Services,
    session: Session,
    kind: str,
    items: Sequence[Any],
    before: datetime,
    held: Held,
    *,
    planned: bool = False,
) -> list[Any]:
    """Return those of the due items of a kind that are due by the log too.

    A key's row has a MAC, and is not compared. planned: requests of a case that are still
    stored count as destroyed, because the same run destroys them. Raises as `model_events`.
    """
    if kind in ("contact", "case"):
        return [
            one
            for one in items
            if _is_due(services, session, one, before, held, kind=kind, planned=planned)
        ]
    if kind == "key":
        return list(items)
    if kind == "hold":
        events = hold_events(services.ledger)
        return [one for one in items if is_released(one, events.get(one.id, ()), before)]
    logged = logged_requests(services.ledger, services.root_secret, session, items)
    if kind == "undecided":
        return [
            one
            for one in items
            if is_undecided(services.ledger, session, one, logged.get(one.id), before, held)
        ]
    return [
        one
        for one in items
        if (
            _has_ended(one, logged.get(one.id), before, held)
            and (kind != "evidence" or _is_own(session, one, logged[one.id]))
        )
        or (kind == "evidence" and _was_put_back(session, one))
    ]


def _has_ended(
    request: ErasureRequest, said: LoggedRequest | None, before: datetime, held: Held
) -> bool:
    if said is None or said.ended is None or said.ended >= before:
        return False
    return not held.keeps(request, said.model, said.case)


def _is_own(session: Session, request: ErasureRequest, said: LoggedRequest) -> bool:
    """Return whether the evidence that the tables name is that of the request's judgement."""
    evidence = session.get_one(Artifact, session.get_one(Verification, request.id).evidence_id)
    return evidence.digest == said.evidence


def _was_put_back(session: Session, request: ErasureRequest) -> bool:
    """Return whether the scope of a request was destroyed: nothing opens its entries."""
    return not request.event_key and request.ref in ended_refs(session, "scope")


def _is_due(
    services: Services,
    session: Session,
    case: Case,
    before: datetime,
    held: Held,
    *,
    kind: str,
    planned: bool,
) -> bool:
    """Return whether a case, or its contact address, is due by the log."""
    parts = logged_parts(services.ledger, case)
    if parts is None or case.key is None or case.ref in held.cases:
        return False
    if (case.due_at if kind == "contact" else case.received_at) >= before:
        return False
    if kind == "contact":
        contact = contact_digest(case.key, case.contact)
        if any(logged_part(services.ledger, one).get("contact") != contact for one in parts):
            return False
    own = own_requests(services.ledger, services.root_secret, session, case, parts)
    if own is None:
        return False
    if kind == "case" and own:
        return planned and all(_has_ended(one, said, before, held) for one, said in own)
    if any(said.ended is None or max(said.due, said.ended) >= before for _, said in own):
        return False
    return not any(held.keeps(one, said.model, said.case) for one, said in own)
