"""The request of a case in one model: the open one that erases its records, or a new one."""

import hmac
from collections.abc import Sequence
from typing import Any

from sqlmodel import Session, col, select

from app.ledger.key_rows import believed
from app.problems import ConflictError
from app.reconcile.approval import PAIRED
from app.reconcile.judgement import opened
from app.reconcile.model_events import request_events
from app.reconcile.people import PeopleChangedError
from app.schemas.people import NewCase
from app.schemas.requests import NewRequest, Scope
from app.service.admission import RECEIVED
from app.service.context import Services
from app.service.desk.people import Found
from app.service.parts import UNLIKE
from app.service.scope import covers
from lethe.log.entries import CommitmentError, EntryError
from models import Case, ErasureRequest, Model, Record, RequesterKey
from models.database.session import rows_in


def request_for(wanted: NewCase, found: Found) -> NewRequest:
    """Return the request that erases the records of a person in one model."""
    scope = Scope(level="sample", records=list(found.learned))
    return NewRequest(model=found.model.ref, scope=scope, regulation=wanted.regulation)


def claimant(
    services: Services, session: Session, model: Model, records: Sequence[str]
) -> str | None:
    """Return the open request that erases all of these records, None if none is claimed.

    Raises PeopleChangedError: the model does not hold a record that has identities, or the log
    has the request with another scope; ConflictError: some are being erased by other requests,
    and not all by one, or the request is not open any more.
    """
    query = select(Record.record, Record.claimed_by).where(Record.model_id == model.id)
    claims: dict[str, str | None] = dict(rows_in(session, query, col(Record.record), records))
    if len(claims) != len(records):
        raise PeopleChangedError(
            "a record with identities is not in the training set: run `lethe log fsck`"
        )
    by = set(claims.values())
    if by == {None}:
        return None
    if len(by) > 1:
        raise ConflictError(
            f"some of the person's records in the model {model.ref} are being erased by an "
            "earlier request: try again once it is certified"
        )
    request_id = by.pop()
    assert request_id is not None
    _check_covers(services, session, model, request_id, records)
    return request_id


def _check_covers(
    services: Services, session: Session, model: Model, request_id: str, records: Sequence[str]
) -> None:
    """Check that an open request erases these records, by its scope in the log.

    The table `records` alone is not trusted: a forged claim would let the certificate of
    another person's request answer the case.
    """
    request = session.get_one(ErasureRequest, request_id)
    try:
        events = opened(session, request, request_events(services.ledger, request.ref))
    except (CommitmentError, EntryError):
        raise PeopleChangedError(UNLIKE) from None
    received = [event.payload for event in events if event.event == RECEIVED]
    if not received:
        raise ConflictError(
            f"an earlier request for the person's records in the model {model.ref} is not open "
            "any more: see its status, then try again"
        )
    scope = Scope.model_validate(received[0]["scope"])
    if received[0]["model"] != model.ref or not covers(session, model.id, scope, records):
        raise PeopleChangedError(UNLIKE)


def on_behalf(
    session: Session, case: Case, wanted: NewCase, found: Found, issued_by: str | None
) -> dict[str, Any]:
    """Return the payload of `request.on-behalf`: who submits it, and what was checked."""
    assert case.key is not None
    return {
        "case": case.ref,
        "by": case.opened_by,
        "ticket": hmac.digest(case.key, b"ticket\0" + wanted.ticket.encode(), "sha256").hex(),
        "checked": wanted.checked,
        "issued_by": issued_by,
        "imported_by": found.importers,
        "registration": _agents_key(session, case.opened_by),
    }


def _agents_key(session: Session, name: str) -> str | None:
    """Return the log's reference of a paired agent's key, None for other names."""
    if not name.startswith(PAIRED):
        return None
    key = believed(session, RequesterKey, name.removeprefix(PAIRED))
    return None if key is None else key.ref
