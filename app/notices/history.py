"""The delivery log of an endpoint or callback, replay, and test notices."""

import uuid

from sqlalchemy import update
from sqlmodel import Session, col, select

from app.notices import deliver, endpoints, events
from app.notices.callbacks import rows as callbacks
from app.notices.notice import delivery_id, today
from app.notices.writing import put, write
from app.problems import ConflictError, NotFoundError
from app.service.context import Services
from app.service.paging import format_cursor, parse_cursor
from models import Delivery
from models.database.types import clock

CALLBACK = "cb_"  # ids of callbacks begin with it


def page(
    services: Services, webhook: str, after: str | None, limit: int
) -> tuple[list[Delivery], str | None]:
    """Return the deliveries of an endpoint or callback, newest first, and the next cursor.

    Raises NotFoundError: no such endpoint or callback; BadCursorError: the cursor did not come
    from this list.
    """
    with services.reading() as session:
        if not webhook.startswith(CALLBACK):
            endpoints.find(session, webhook)
        query = (
            select(Delivery)
            .where(Delivery.receiver == webhook)
            .order_by(col(Delivery.created_at).desc(), col(Delivery.id))
            .limit(limit + 1)
        )
        if after is not None:
            at, last = parse_cursor(after)
            older = (col(Delivery.created_at) < at) | (
                (col(Delivery.created_at) == at) & (col(Delivery.id) > last)
            )
            query = query.where(older)
        rows = list(session.exec(query).all())
        if not rows and webhook.startswith(CALLBACK):  # one that has ended may have some
            callbacks.find(services, session, webhook)
    more = None
    if len(rows) > limit:
        more = format_cursor(rows[limit - 1].created_at, rows[limit - 1].id)
    return rows[:limit], more


def replay(services: Services, webhook: str, delivery: str | None) -> int:
    """Queue a delivery again, or all that failed; return how many.

    The id stays the same: a receiver that has handled it ignores it.

    Raises NotFoundError: no such endpoint or callback, or it has no such delivery;
    ConflictError: the endpoint is disabled, or the delivery still waits.
    """

    def effect(session: Session) -> int:
        _check_sends(services, session, webhook)
        again = update(Delivery).where(col(Delivery.receiver) == webhook)
        if delivery is None:
            again = again.where(col(Delivery.state) == events.FAILED)
        else:
            row = session.get(Delivery, delivery)
            if row is None or row.receiver != webhook:
                raise NotFoundError(
                    "the webhook has no delivery of this id: list its deliveries"
                )
            if row.state == events.WAITING:
                raise ConflictError(
                    "this delivery already waits to be sent: there is nothing to do"
                )
            again = again.where(col(Delivery.id) == delivery)
        done = session.connection().execute(
            again.values(
                state=events.WAITING,
                attempts=0,
                next_at=clock(session),
                lease_until=None,
                answer=None,
                ended_at=None,
            )
        )
        return done.rowcount

    return write(services, effect)


def send_test(services: Services, webhook: str) -> Delivery:
    """Send a test notice now and return its delivery, whatever the outcome.

    Raises NotFoundError: no such endpoint; ConflictError: it is disabled.
    """
    owed: list[tuple[str, str, str]] = []

    def effect(session: Session) -> None:
        _check_sends(services, session, webhook)
        about = f"test-{uuid.uuid4().hex[:12]}@{today(session)}"
        owed.append((webhook, events.TEST, about))
        put(services, session, owed)

    write(services, effect)
    name = delivery_id(services, *owed[0])
    deliver.attempt(services, name)
    with services.reading() as session:
        return session.get_one(Delivery, name)


def _check_sends(services: Services, session: Session, receiver: str) -> None:
    if receiver.startswith(CALLBACK):
        callbacks.find(services, session, receiver)
    elif endpoints.find(session, receiver).disabled is not None:
        raise ConflictError("the webhook is disabled: enable it first")
