"""The rows of callbacks: find, store, note what was delivered, delete at the end."""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from sqlalchemy import delete, exists, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, and_, col, func, or_, select

from app.ledger.callback_rows import is_authentic, lane, new_rows
from app.ledger.entry_macs import EntryKey
from app.ledger.transaction import Transaction
from app.notices import events
from app.notices.writing import put, write
from app.problems import NotFoundError
from app.service.access.quota import check_limit
from app.service.context import Services
from app.service.paging import format_cursor, parse_cursor
from lethe.errors import LetheError
from models import Callback, Delivery, ErasureRequest, RequestEvent
from models.database.session import chunks, rows_in

log = logging.getLogger(__name__)

AT_ONCE = 500  # rows in one transaction


class Follower(NamedTuple):
    """A callback as the outbox sees it: its address stays sealed."""

    id: str
    kind: str
    owner: str


def find(services: Services, session: Session, callback: str) -> Callback:
    """Return a callback. Raises NotFoundError if this installation wrote none of this id."""
    refs = session.exec(select(Callback.ref).where(Callback.id == callback)).all()
    for ref in refs:
        try:
            row = session.get(Callback, (callback, ref))
        except (LetheError, ValueError):  # sealed for another place
            row = None
        if row is not None and is_authentic(entry_key(services), row):
            return row
        log.warning("a row of callbacks is not as this installation wrote it: nobody is called")
    raise NotFoundError("no callback has this id: it may be over, see `lethe callback list`")


def page(
    services: Services, ref: str | None, after: str | None, limit: int
) -> tuple[list[Callback], str | None]:
    """Return callbacks whose address is stored, oldest first, and the next cursor.

    ref: only of this request, by its reference in the log or the id that an agent gave it.
    Raises BadCursorError if the cursor did not come from this list.
    """
    first = func.min(col(Callback.created_at))
    query = select(Callback.id, first).group_by(col(Callback.id))
    if ref is not None:
        query = query.where(or_(col(Callback.ref) == ref, col(Callback.request) == ref))
    if after is not None:
        at, last = parse_cursor(after)
        query = query.having(or_(first > at, and_(first == at, col(Callback.id) > last)))
    found = []
    with services.reading() as session:
        names = session.exec(query.order_by(first, col(Callback.id)).limit(limit + 1)).all()
        for name, _ in names[:limit]:
            with suppress(NotFoundError):  # a row that was not written here
                found.append(find(services, session, name))
        more = None
        if len(names) > limit:
            last_name, at = names[limit - 1]
            more = format_cursor(at, last_name)
    return found, more


def followers(session: Session, refs: Iterable[str]) -> dict[str, list[Follower]]:
    """Return the callbacks of requests, by the requests' refs."""
    found: dict[str, list[Follower]] = {}
    query = select(Callback.ref, Callback.id, Callback.kind, Callback.owner)
    for ref, *follower in rows_in(session, query, col(Callback.ref), sorted(refs)):
        found.setdefault(ref, []).append(Follower(*follower))
    return found


def last_states(session: Session) -> list[tuple[str, str, int]]:
    """Return (event, ref, log index) of the newest event of each request with a callback."""
    newest = (
        select(ErasureRequest.ref, func.max(col(RequestEvent.log_index)))
        .join(RequestEvent, col(RequestEvent.request_id) == col(ErasureRequest.id))
        .where(
            col(ErasureRequest.ref).in_(select(Callback.ref)),
            col(RequestEvent.event).in_(events.STATES),
        )
        .group_by(col(ErasureRequest.ref))
    )
    found = {index: ref for ref, index in session.exec(newest)}
    query = select(RequestEvent.event, RequestEvent.log_index)
    named = rows_in(session, query, col(RequestEvent.log_index), sorted(found))
    return [(event, found[index], index) for event, index in named]


def are_any(session: Session) -> bool:
    """Return whether there is any callback."""
    return session.exec(select(Callback.id).limit(1)).first() is not None


def follow(
    services: Services,
    kind: str,
    owner: str,
    request: str,
    urls: Sequence[str],
    followed: Callable[[Session], Sequence[str]],
) -> None:
    """Store the callbacks of an agent's request, and queue the current status for each.

    followed: returns the references of the logged requests that they follow. It is called under
    the log's lock: what replaces one that ends follows the callbacks that are stored by then.

    Idempotent: callbacks that are stored stay as they are. Raises CallbackLimitError, and
    stores none, if the agent has reached its limit.
    """
    key = entry_key(services)

    def effect(tx: Transaction) -> None:
        session, refs = tx.session, followed(tx.session)
        dialect = sqlite if session.get_bind().dialect.name == "sqlite" else postgresql
        owed, lanes = [], {}
        for url in dict.fromkeys(urls):
            made = new_rows(key, kind, owner, request, url, refs, tx.now)
            name = str(made[0]["id"])
            known = select(Callback.id).where(Callback.id == name)
            if session.exec(known).first() is not None:
                continue
            check_limit(services, session, kind, owner)
            session.connection().execute(
                dialect.insert(Callback).values(made).on_conflict_do_nothing()
            )
            owed.append((name, events.STATUS, "0"))
            lanes[name] = lane(key, kind, owner)
        put(services, session, owed, lanes)

    services.ledger.transact(effect, checkpoint=False)


def is_overtaken(session: Session, delivery: Delivery) -> bool:
    """Return whether a later entry of the log waits for, or reached, the same address."""
    others = select(Delivery.about).where(
        col(Delivery.receiver) == delivery.receiver,
        col(Delivery.id) != delivery.id,
        col(Delivery.state).in_((events.WAITING, events.DELIVERED)),
    )
    found = session.exec(others)
    return any(int(about) > int(delivery.about) for about in found if about.isdecimal())


def note(session: Session, callback: str, delivered: str | None, ended: bool) -> None:
    """Note the state that was delivered, and whether it was the last."""
    values = ({"delivered_state": delivered} if delivered else {}) | (
        {"ended": True} if ended else {}
    )
    if values:
        session.connection().execute(
            update(Callback).where(col(Callback.id) == callback).values(values)
        )


def forget_ended(services: Services) -> None:
    """Delete the callbacks of ended requests for which no delivery waits."""
    waits = exists().where(
        col(Delivery.receiver) == col(Callback.id), col(Delivery.state) == events.WAITING
    )
    over = select(Callback.id).where(col(Callback.ended), ~waits).limit(AT_ONCE)
    with services.reading() as session:
        ids = list(session.exec(over))
    if ids:
        write(services, lambda session: _delete(session, ids))


def remove(services: Services, callback: str) -> Callback:
    """Delete a callback and return it; deliveries that wait for it are dropped.

    Raises NotFoundError if there is none.
    """

    def effect(session: Session) -> Callback:
        row = find(services, session, callback)
        session.expunge(row)
        _delete(session, [callback])
        return row

    return write(services, effect)


def _delete(session: Session, ids: Sequence[str]) -> None:
    for part in chunks(sorted(set(ids))):
        session.connection().execute(delete(Callback).where(col(Callback.id).in_(part)))


def entry_key(services: Services) -> EntryKey:
    """Return the key of the log's entries."""
    assert services.ledger.entry_key is not None, "a ledger that only looks sends nothing"
    return services.ledger.entry_key
