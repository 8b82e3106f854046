"""Reminders to officers of open requests, before their deadline and once it has passed."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from sqlmodel import Session, col, or_, select

from app.ledger.transaction import Transaction
from app.service.context import Services
from app.service.deadlines import REMIND_DAYS, days_left
from app.service.desk.queue import OPEN
from app.service.review import PAUSED
from models import ErasureRequest
from models.database.types import clock

log = logging.getLogger(__name__)
AT_ONCE = 100  # requests in one transaction


def remind(services: Services, owe: Callable[[Session, ErasureRequest], None]) -> int:
    """Write reminders of open requests to the service's log, once for each of REMIND_DAYS.

    owe: called with each overdue request, in the reminder's transaction. Returns how many.
    """
    with services.reading() as session:
        if not _due(session, clock(session)):
            return 0

    def effect(tx: Transaction) -> list[tuple[ErasureRequest, int]]:
        due = _due(tx.session, tx.now)
        for request, left in due:
            request.reminded = left
            if left < 0:
                owe(tx.session, request)
        tx.session.flush()
        return due

    told = services.ledger.transact(effect, checkpoint=False)
    for request, left in told:
        _write(request, left)
    return len(told)


def _write(request: ErasureRequest, left: int) -> None:
    when = "is overdue" if left < 0 else f"is due within {left + 1} days"
    log.warning(
        "request %s %s, state %s: see `lethe case show`", request.ref, when, request.state
    )


def _due(session: Session, now: datetime) -> list[tuple[ErasureRequest, int]]:
    """Return requests that have reached their next threshold, with the days left."""
    found: list[tuple[ErasureRequest, int]] = []
    for most in REMIND_DAYS:
        query = (
            select(ErasureRequest)
            .where(
                col(ErasureRequest.state).in_([one for one in OPEN if one != PAUSED]),
                col(ErasureRequest.due_at) < now + timedelta(days=most),
                or_(
                    col(ErasureRequest.reminded).is_(None), col(ErasureRequest.reminded) >= most
                ),
            )
            .limit(AT_ONCE)
        )
        known = {one.id for one, _ in found}
        found += [
            (one, days_left(one.due_at, now))
            for one in session.exec(query)
            if one.id not in known
        ]
    return found
