"""Lists of requests: filters and keyset pages."""

from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session, col, or_, select

from app.problems import NotFoundError, UnknownModelError
from app.schemas.base import Page
from app.schemas.requests import RequestSummary
from app.service.context import Services
from app.service.paging import format_cursor, in_utc, parse_cursor
from app.service.requests import certificate_path, is_overdue, overdue_at
from app.witnesses.rows import Rows
from models import Certificate, ErasureRequest, Model
from models.database.types import clock


@dataclass(frozen=True, slots=True)
class Filter:
    """The filters of a list; None means any."""

    state: str | None = None
    model: str | None = None
    method: str | None = None
    ref: str | None = None
    overdue: bool | None = None
    since: datetime | None = None
    until: datetime | None = None


def list_requests(
    services: Services, wanted: Filter, after: str | None, limit: int, *, capabilities: bool
) -> Page[RequestSummary]:
    """Return one page of requests, oldest first.

    The cursor is a position in (received_at, ref), so a page never repeats or skips a request
    that was there when the first page was read.

    Args:
        services: The open database.
        wanted: Which requests.
        after: Cursor of the page before.
        limit: Most items.
        capabilities: Whether the reader may have the requests' ids, which give access to scope
            and evidence. Others get the public reference only.

    Raises:
        BadCursorError: The cursor did not come from this service, or a time has no zone.
        UnknownModelError: No model has that reference; an empty list would hide a misspelling.
        NotFoundError: No request has that reference.
    """
    query = (
        select(ErasureRequest, Model.ref, Certificate.log_index)
        .join(Model, col(ErasureRequest.model_id) == col(Model.id))
        .join(Certificate, col(Certificate.request_id) == col(ErasureRequest.id), isouter=True)
        .order_by(col(ErasureRequest.received_at), col(ErasureRequest.ref))
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
    if wanted.since is not None:
        query = query.where(col(ErasureRequest.received_at) >= in_utc(wanted.since))
    if wanted.until is not None:
        query = query.where(col(ErasureRequest.received_at) < in_utc(wanted.until))
    if after is not None:
        at, ref = parse_cursor(after)
        query = query.where(
            or_(
                col(ErasureRequest.received_at) > at,
                (col(ErasureRequest.received_at) == at) & (col(ErasureRequest.ref) > ref),
            )
        )
    with services.reading() as session:
        _check_named(session, wanted)
        now = clock(session)
        if wanted.overdue is not None:
            late = overdue_at(now)
            query = query.where(late if wanted.overdue else ~late)
        rows = list(session.exec(query))
        issued_below = Rows(services.ledger).issued_below(session)
    items = [
        RequestSummary(
            id=request.id if capabilities else None,
            ref=request.ref,
            state=request.state,
            model=model,
            method=request.method,
            regulation=request.regulation,
            received_at=request.received_at,
            due_at=request.due_at,
            overdue=is_overdue(request, now),
            certificate=certificate_path(request.id)
            if capabilities and index is not None and index < issued_below
            else None,
        )
        for request, model, index in rows[:limit]
    ]
    more = len(rows) > limit
    last = rows[limit - 1][0] if more else None
    return Page(items=items, next=format_cursor(last.received_at, last.ref) if last else None)


def _check_named(session: Session, wanted: Filter) -> None:
    if wanted.model is not None:
        found = select(Model.id).where(Model.ref == wanted.model)
        if session.exec(found).first() is None:
            raise UnknownModelError("no model has this reference: GET /v1/models lists them")
    if wanted.ref is not None:
        held = select(ErasureRequest.id).where(ErasureRequest.ref == wanted.ref)
        if session.exec(held).first() is None:
            raise NotFoundError("no request has this reference: leave the filter out")
