"""Pages of lists: positions as cursors, and lists in the order of one column."""

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlmodel import Session, col
from sqlmodel.sql.expression import SelectOfScalar

from app.problems import BadCursorError
from app.schemas.base import Page, Wire

NUMBER_DIGITS = 18  # always fits a 64-bit integer

Row = TypeVar("Row")
Shown = TypeVar("Shown", bound=Wire)


def page_of(
    session: Session,
    query: SelectOfScalar[Row],
    key: Any,
    after: Any,
    limit: int,
    show: Callable[[Row], Shown],
) -> Page[Shown]:
    """Return the rows that follow `after` in the order of the column `key`, which is unique."""
    column = col(key)
    if after is not None:
        query = query.where(column > after)
    rows = list(session.exec(query.order_by(column).limit(limit + 1)))
    more = str(getattr(rows[limit - 1], key.key)) if len(rows) > limit else None
    return Page(items=[show(row) for row in rows[:limit]], next=more)


def format_cursor(at: datetime, ref: str) -> str:
    """Return an opaque cursor for a position in the list."""
    return base64.urlsafe_b64encode(f"{at.isoformat()}|{ref}".encode()).decode()


def parse_cursor(cursor: str) -> tuple[datetime, str]:
    """Return the position a cursor stands for.

    Raises BadCursorError if it is not a cursor of this service.
    """
    try:
        text, _, ref = base64.urlsafe_b64decode(cursor.encode()).decode().partition("|")
        at = in_utc(datetime.fromisoformat(text))
    except ValueError:  # binascii.Error is one
        raise _bad_cursor() from None
    if format_cursor(at, ref) != cursor or not (ref.isascii() and ref.isprintable()):
        raise _bad_cursor()
    return at, ref


def parse_number(cursor: str) -> int:
    """Return the number in a cursor of a numbered list.

    Raises BadCursorError if this service could not have issued it.
    """
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= NUMBER_DIGITS):
        raise _bad_cursor()
    return int(cursor)


def _bad_cursor() -> BadCursorError:
    return BadCursorError("`after` is not a cursor of this list: start without it")


def in_utc(at: datetime) -> datetime:
    """Return a time of a query in UTC. Raises BadCursorError if it has no zone."""
    if at.tzinfo is None:
        raise BadCursorError("times in a query need a zone, such as 2026-11-21T00:00:00Z")
    try:
        return at.astimezone(UTC)
    except OverflowError:  # the first or last day of the calendar, in another zone
        raise BadCursorError("a time in the query lies outside the calendar") from None
