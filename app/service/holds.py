"""Legal holds keep data needed by litigation or an authority beyond the end of retention.

A hold keeps a request, a case with its requests, or a model with all requests to it. It stops
no erasure: to keep data for legal claims, refuse the request (GDPR Art. 17(3)(e)).
"""

import secrets
import uuid
from collections.abc import Sequence
from dataclasses import replace

from sqlmodel import Session, col, select

from app.ledger.journal import record_hold_event
from app.ledger.transaction import Transaction
from app.problems import ConflictError, ForbiddenError, HeldError, NotFoundError
from app.reconcile.approval import person
from app.reconcile.case_parts import logged_parts
from app.reconcile.holds import (
    CASE,
    MODEL,
    NOTHING,
    PLACED,
    RELEASED,
    REQUEST,
    UNTARGETED,
    HoldsChangedError,
    compare,
    held,
    said,
)
from app.reconcile.logged_requests import logged_requests, own_requests
from app.reconcile.model_events import hold_events
from app.schemas.base import Page
from app.schemas.people import HoldView, NewHold
from app.service.context import Services
from app.service.paging import page_of
from lethe.log.entries import COMMITMENT_KEY_SIZE
from models import Case, ErasureRequest, LegalHold, Model

ENDED = "its retention has ended: there is nothing left that a hold could keep"
UNKNOWN = "no hold has this id: see `lethe hold list`"
UNSIGNED = (
    "the log does not have who placed this hold: run `lethe log fsck`, and restore legal_holds "
    "from a backup"
)

KEPT_MODEL = (
    "a legal hold keeps the model, or a request to it: see `lethe hold list`; somebody else "
    "than who placed it may release it"
)
KEPT_CASE = (
    "a legal hold keeps the case, and closing it destroys the contact address: close it once "
    "the hold is released"
)


def place(services: Services, wanted: NewHold, by: str) -> HoldView:
    """Place a hold on the case, request or model of a reference; the log names `by`.

    Raises:
        NotFoundError: No case, request or model has this reference.
        ConflictError: Its retention has ended, or the model was deleted.
    """

    def effect(tx: Transaction) -> HoldView:
        hold = LegalHold(
            id=str(uuid.uuid4()),
            kind=_kind_of(tx.session, wanted.ref),
            target=wanted.ref,
            reason=wanted.reason,
            key=secrets.token_bytes(COMMITMENT_KEY_SIZE),
            placed_by=by,
            placed_at=tx.now,
            log_index=tx.next_index,
        )
        record_hold_event(tx, hold.id, PLACED, hold.key, said(hold, PLACED))
        tx.session.add(hold)
        tx.session.flush()
        return show(hold)

    return services.ledger.transact(effect)


def release(services: Services, hold_id: str, by: str) -> HoldView:
    """Release a hold that somebody else placed; the log names `by`.

    Raises:
        NotFoundError: There is none.
        ConflictError: It was released before.
        ForbiddenError: By the log, `by` placed it.
        HoldsChangedError: Table and log disagree on it.
    """

    def effect(tx: Transaction) -> HoldView:
        hold = tx.session.get(LegalHold, hold_id)
        if hold is None:
            raise NotFoundError(UNKNOWN)
        if hold.released_at is not None:
            raise ConflictError("this hold was already released")
        logged = hold_events(services.ledger).get(hold_id, [])
        if not logged or compare({hold_id: hold}, {hold_id: logged})[1]:
            raise HoldsChangedError(UNSIGNED)
        if person(by) == person(hold.placed_by):
            raise ForbiddenError(
                "nobody releases a hold that they placed: have another operator or an officer "
                "release it, with a token of another name"
            )
        hold.released_by, hold.released_at = by, tx.now
        hold.release_index = record_hold_event(
            tx, hold.id, RELEASED, hold.key, said(hold, RELEASED)
        )
        tx.session.flush()
        return show(hold)

    return services.ledger.transact(effect)


def page(session: Session, after: str | None, limit: int, *, released: bool) -> Page[HoldView]:
    """Return holds by id: the unreleased ones, or all if `released`."""
    query = select(LegalHold)
    if not released:
        query = query.where(col(LegalHold.released_at).is_(None))
    return page_of(session, query, LegalHold.id, after, limit, show)


def find(session: Session, hold_id: str) -> HoldView:
    """Return a hold, released or not. Raises NotFoundError if there is none."""
    hold = session.get(LegalHold, hold_id)
    if hold is None:
        raise NotFoundError(UNKNOWN)
    return show(hold)


def show(hold: LegalHold) -> HoldView:
    """Return a hold as it is shown to operators and officers."""
    return HoldView.model_validate(hold.model_dump(exclude={"key", "kind"}) | {"of": hold.kind})


def show_all(found: Sequence[LegalHold]) -> list[HoldView]:
    """Return holds as they are shown to operators and officers."""
    return [show(hold) for hold in found]


def require_deletable(services: Services, session: Session, model: Model) -> None:
    """Check that no hold keeps a model, or a request to it.

    Raises:
        HeldError: One does.
        HoldsChangedError: As `held`, or a held request differs from the log.
        ForkedError, LogDamagedError, GuardError: As `held`.
    """
    found = held(services.ledger, session)
    own = select(ErasureRequest.id).where(ErasureRequest.model_id == model.id, found.request())
    if model.id in found.models or session.exec(own.limit(1)).first() is not None:
        raise HeldError(KEPT_MODEL)
    # The tables may name another model for a held request: its entry counts.
    others = select(ErasureRequest).where(replace(found, models=frozenset()).request())
    rows = session.exec(others).all()
    logged = logged_requests(services.ledger, services.root_secret, session, rows)
    for one in rows:
        if one.id in logged and logged[one.id].model == model.ref:
            raise HeldError(KEPT_MODEL)
        if one.event_key and one.id not in logged:
            raise HoldsChangedError(UNTARGETED)


def require_closable(services: Services, session: Session, case: Case) -> None:
    """Check that no hold keeps a case: closing it would destroy the contact address.

    Raises:
        HeldError: One does.
        HoldsChangedError: As `held`, or the case or a request of it differs from the log.
        ForkedError, LogDamagedError, GuardError: As `held`.
    """
    found = held(services.ledger, session)
    if found == NOTHING:
        return
    kept = select(Case.ref).where(Case.ref == case.ref, found.case())
    if session.exec(kept).first() is not None:
        raise HeldError(KEPT_CASE)
    if case.key is None:  # its retention has ended: the contact address is gone
        return
    parts = logged_parts(services.ledger, case)
    own = None
    if parts is not None:
        own = own_requests(services.ledger, services.root_secret, session, case, parts)
    if own is None:
        raise HoldsChangedError(UNTARGETED)
    if any(found.keeps(one, said.model, said.case) for one, said in own):
        raise HeldError(KEPT_CASE)


def _kind_of(session: Session, ref: str) -> str:
    """Return the kind of a reference. Raises NotFoundError, or ConflictError for no data."""
    if (case := session.get(Case, ref)) is not None:
        if case.key is None:
            raise ConflictError(ENDED)
        return CASE
    query = select(ErasureRequest.forgotten_at).where(ErasureRequest.ref == ref)
    if (request := session.exec(query).all()) != []:
        if request[0] is not None:
            raise ConflictError(ENDED)
        return REQUEST
    model = session.exec(select(Model).where(Model.ref == ref)).first()
    if model is None:
        raise NotFoundError("no case, request or model has this reference")
    if model.state == "deleted":
        raise ConflictError("the model was deleted: a hold cannot keep it")
    return MODEL
