"""Lists of requests: filters and keyset pages."""

import base64
import binascii
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlmodel import col, or_, select

from app.schemas.base import Page
from app.schemas.requests import RequestSummary
from app.service.context import Services
from app.service.problems import BadCursorError
from app.service.requests import CLOSED, certificate_path, is_overdue
from models import Certificate, ErasureRequest, Model


@dataclass(frozen=True, slots=True)
class Filter:
    """What a list may be narrowed by; None means any."""

    state: str | None = None
    model: str | None = None
    method: str | None = None
    ref: str | None = None
    overdue: bool | None = None
    since: datetime | None = None
    until: datetime | None = None


def list_requests(
    services: Services, wanted: Filter, after: str | None, limit: int
) -> Page[RequestSummary]:
    """Return one page of requests, oldest first.

    The cursor is a position in (received_at, id), so a page never repeats or skips a request
    that was there when the first page was read.

    Raises:
        BadCursorError: The cursor did not come from this service, or a time has no zone.
    """
    now = datetime.now(UTC)
    query = (
        select(ErasureRequest, Model.ref, Certificate.id)
        .join(Model, col(ErasureRequest.model_id) == col(Model.id))
        .join(Certificate, col(Certificate.request_id) == col(ErasureRequest.id), isouter=True)
        .order_by(col(ErasureRequest.received_at), col(ErasureRequest.id))
        .limit(limit + 1)
    )
    if wanted.state is not None:
        query = query.where(ErasureRequest.state == wanted.state)
    if wanted.model is not None:
        query = query.where(Model.ref == wanted.model)
    if wanted.method is not None:
        query = query.where(ErasureRequest.method == wanted.method)
    if wanted.ref is not None:
        query = query.where(ErasureRequest.ref == wanted.ref)
    if wanted.overdue is not None:
        late = (col(ErasureRequest.due_at) < now) & col(ErasureRequest.state).not_in(CLOSED)
        query = query.where(late if wanted.overdue else ~late)
    if wanted.since is not None:
        query = query.where(col(ErasureRequest.received_at) >= _zoned(wanted.since))
    if wanted.until is not None:
        query = query.where(col(ErasureRequest.received_at) < _zoned(wanted.until))
    if after is not None:
        at, request_id = parse_cursor(after)
        query = query.where(
            or_(
                col(ErasureRequest.received_at) > at,
                (col(ErasureRequest.received_at) == at) & (col(ErasureRequest.id) > request_id),
            )
        )
    with services.reading() as session:
        rows = list(session.exec(query))
    items = [
        RequestSummary(
            id=request.id,
            ref=request.ref,
            state=request.state,
            model=model,
            method=request.method,
            regulation=request.regulation,
            received_at=request.received_at,
            due_at=request.due_at,
            overdue=is_overdue(request, now),
            certificate=certificate_path(request.id) if certificate else None,
        )
        for request, model, certificate in rows[:limit]
    ]
    more = len(rows) > limit
    last = rows[limit - 1][0] if more else None
    return Page(items=items, next=format_cursor(last.received_at, last.id) if last else None)


def format_cursor(at: datetime, request_id: str) -> str:
    """Return an opaque cursor for a position in the list."""
    return base64.urlsafe_b64encode(f"{at.isoformat()}|{request_id}".encode()).decode()


def parse_cursor(cursor: str) -> tuple[datetime, str]:
    """Return the position a cursor stands for.

    Raises:
        BadCursorError: It is not a cursor of this service.
    """
    try:
        at, _, request_id = base64.urlsafe_b64decode(cursor.encode()).decode().partition("|")
        return _zoned(datetime.fromisoformat(at)), request_id
    except (ValueError, binascii.Error):
        raise BadCursorError("`after` is not a cursor of this list: start without it") from None


def _zoned(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise BadCursorError("times in a query need a zone, such as 2026-11-21T00:00:00Z")
    return at
