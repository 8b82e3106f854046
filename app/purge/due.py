"""Queries for items whose retention has ended, by the kinds of `lethe.catalogue.RETAINED`.

They read tables only: `app.purge.confirmed` compares what they find with the log.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement
from sqlmodel import Session, col, func, select
from sqlmodel.sql.expression import SelectOfScalar

from app.ledger.key_rows import believed
from app.reconcile.holds import Held
from app.reconcile.retention import has_evidence
from app.reconcile.undecided import undecided
from app.service.access.keys import DESTROYED
from app.service.parts import ERASING
from app.service.requests import CLOSED
from models import Case, ErasureRequest, LegalHold, RequesterKey, RequestEvent
from models.database.session import rows_in

Query = SelectOfScalar[Any]


def evidence(before: datetime, held: Held) -> Query:
    """Select the requests whose evidence is due. held: excluded here and in all queries."""
    return select(ErasureRequest).where(_ended(before), has_evidence(), ~held.request())


def scope(before: datetime, held: Held, *, planned: bool = False) -> Query:
    """Select the requests whose scope and openings are due; evidence is destroyed first.

    planned: count the evidence as destroyed, because the same run destroys it.
    """
    kept = col(ErasureRequest.forgotten_at).is_(None)
    query = select(ErasureRequest).where(kept, _ended(before), ~held.request())
    return query if planned else query.where(~has_evidence())


def contact(before: datetime, held: Held) -> Query:
    """Select the cases whose contact address is due: all their requests are closed.

    An extension moves the deadline of the request only. An answer after the deadline is still
    to be sent.
    """
    late = col(Case.contact).is_not(None), col(Case.due_at) < before
    needed = select(ErasureRequest.id).where(
        ErasureRequest.case_ref == Case.ref,
        col(ErasureRequest.state).not_in(CLOSED)
        | (col(ErasureRequest.due_at) >= before)
        | (_last() >= before),
    )
    return select(Case).where(*late, ~needed.exists(), ~held.case())


def case(before: datetime, held: Held, *, planned: bool = False) -> Query:
    """Select the cases whose key is due: the scopes of all their requests are destroyed.

    planned: count due scopes as destroyed, because the same run destroys them.
    """
    kept = select(ErasureRequest.id).where(
        ErasureRequest.case_ref == Case.ref, col(ErasureRequest.forgotten_at).is_(None)
    )
    if planned:
        kept = kept.where(~_ended(before))
    return select(Case).where(
        col(Case.key).is_not(None),
        col(Case.received_at) < before,
        ~kept.exists(),
        ~held.case(),
    )


def key(before: datetime, held: Held) -> Query:
    """Select the ids of revoked keys without an open or held request; see `bound`."""
    still = select(ErasureRequest.keyid).where(
        col(ErasureRequest.keyid).is_not(None),
        col(ErasureRequest.state).not_in(CLOSED) | held.request(),
    )
    return select(RequesterKey.keyid).where(
        col(RequesterKey.revoked_at).is_not(None),
        col(RequesterKey.revoked_at) <= before,
        col(RequesterKey.keyid).not_in(still),
    )


def hold(before: datetime, held: Held) -> Query:
    """Select the released holds that are due. held: unused, as no hold keeps another."""
    return select(LegalHold).where(
        col(LegalHold.released_at).is_not(None), col(LegalHold.released_at) < before
    )


def without_followers(session: Session, cases: Sequence[Case], before: datetime) -> list[Case]:
    """Leave out cases that follow a request which is open, or ended no earlier than `before`.

    Its end may be theirs, or give them a request of their own.
    """
    named = {
        one.ref: {part["request"] for part in one.parts if part["found"] != ERASING} - {None}
        for one in cases
    }
    query = select(ErasureRequest.id).where(
        col(ErasureRequest.state).not_in(CLOSED) | (_last() >= before)
    )
    every = sorted({one for several in named.values() for one in several})
    going_on = set(rows_in(session, query, col(ErasureRequest.id), every))
    return [one for one in cases if going_on.isdisjoint(named[one.ref])]


def bound(session: Session, keyids: Iterable[str]) -> list[RequesterKey]:
    """Return those of the keys that still name their client or subject."""
    keys = [believed(session, RequesterKey, keyid) for keyid in keyids]
    return [
        one
        for one in keys
        if one is not None and not {one.client, one.subject} <= {None, DESTROYED}
    ]


def selected(kind: str, before: datetime, held: Held, *, planned: bool = False) -> Query:
    """Return the query of a kind. planned: include items that become due within the run."""
    if kind in ("scope", "case"):
        return (scope if kind == "scope" else case)(before, held, planned=planned)
    return _DUE[kind](before, held)


def _ended(before: datetime) -> ColumnElement[bool]:
    return (
        col(ErasureRequest.state).in_(CLOSED)
        & (col(ErasureRequest.received_at) < before)
        & (_last() < before)
    )


def _last() -> ColumnElement[datetime]:
    """Return the time of a request's last event."""
    return (
        select(func.max(RequestEvent.at))
        .where(col(RequestEvent.request_id) == col(ErasureRequest.id))
        .scalar_subquery()
    )


_DUE: Mapping[str, Callable[[datetime, Held], Query]] = {
    "undecided": undecided,
    "evidence": evidence,
    "contact": contact,
    "key": key,
    "hold": hold,
}
