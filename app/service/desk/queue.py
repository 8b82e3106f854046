"""The queue of officers: open items by days left, with filters and keyset pages.

An item is a request, however it was submitted, with the case that it is part of; or a case that
has no open request of its own and is not closed: it is answered, or follows another's request.
Each state is read separately, by an index of state and deadline, so a page reads at most its
own length of each. Cases are read by an index of the stored column `answered`, and their
requests are checked again; they are in the order of the deadlines that they were opened with.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any

from sqlalchemy import ColumnElement, Row, Select
from sqlalchemy import select as columns
from sqlmodel import Session, col, func, or_, select
from sqlmodel.sql.expression import SelectOfScalar

from app.problems import NotFoundError, UnknownModelError
from app.reconcile.holds import NOTHING, Held, among, kept_by, stored
from app.reconcile.model_events import CLOSED
from app.schemas.base import Page
from app.schemas.people import QueueItem, QueueQuery
from app.service.context import Services
from app.service.deadlines import days_left
from app.service.desk import people
from app.service.paging import format_cursor, parse_cursor
from app.service.requests import CLOSED as ENDED
from app.service.requests import is_overdue
from app.service.review import HELD, PAUSED
from models import BearerToken, Case, ErasureRequest, Model, Record, RequesterKey
from models.database.session import read_by_id, rows_in
from models.database.types import clock

ANSWERED = "answered"
FEW = 1000  # most cases of a requester that a query lists
OPEN = (
    *HELD,
    "received",
    "executing",
    "awaiting-client",
    "awaiting-round",
    "escalated",
    "verifying",
    "needs-decision",
    "failed",  # it waits for somebody
)
# Columns of a request. Whole rows take longer to read: their sealed columns are decrypted.
READ = tuple(
    col(getattr(ErasureRequest, name))
    for name in (
        "ref", "case_ref", "model_id", "state", "regulation", "keyid", "assignee",
        "received_at", "due_at", "paused_at",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Scope:
    """A query's filters, resolved. requests: of a person, None for anybody's.

    held: what the holds in the table keep. cases: those that the requester opened, None if
    there are more than FEW.
    """

    model: int | None
    requests: frozenset[str] | None
    held: Held = NOTHING
    cases: Sequence[str] | None = ()


def search(services: Services, wanted: QueueQuery) -> Page[QueueItem]:
    """Return a page of the queue, by deadline. Without a state: open ones; of a person: all.

    Raises:
        BadCursorError: The cursor did not come from this list.
        UnknownModelError: No model has that reference.
        NotFoundError: No key and no token has the requester's name.
        PeopleChangedError: The identities of a model are not those of the log.
    """
    after = None if wanted.after is None else parse_cursor(wanted.after)
    scope = _scope(services, wanted)
    with services.reading() as session:
        now = clock(session)
        states: tuple[str, ...] = (wanted.state,) if wanted.state else (*OPEN, ANSWERED)
        if scope.requests is not None and wanted.state is None:
            states = (*OPEN, *ENDED)
        found = [
            [
                ((row.due_at, row.ref), _item(row, now))
                for row in session.connection().execute(
                    _requests(wanted, scope, one, after, now)
                )
            ]
            for one in states
            # Ended and paused requests are not overdue.
            if one != ANSWERED and not (wanted.overdue and one in (*ENDED, PAUSED))
        ]
        if ANSWERED in states and scope.model is None and scope.requests is None:
            cases = _answered_page(session, wanted, scope, after, now)
            dues, followed = _dues(session, cases), _followed(session, cases)
            found.append(
                [
                    (
                        (one.due_at, one.ref),
                        _of_case(one, dues[one.ref], followed.get(one.ref), now),
                    )
                    for one in cases
                ]
            )
        items = list(islice(merge(*found, key=itemgetter(0)), wanted.limit + 1))
        shown = _completed(session, scope.held, [one for _, one in items[: wanted.limit]])
    cursor = format_cursor(*items[-2][0]) if len(items) > wanted.limit else None
    return Page(items=shown, next=cursor)


def dues_of_following(session: Session, before: datetime) -> list[datetime]:
    """Return the deadlines, before a time, of cases that follow another's open request.

    Such a case is overdue after its own deadline. An answered one is not: it is to be closed.
    """
    cases = session.exec(_not_closed().where(_last_due() < before)).all()
    followed = _followed(session, cases)
    return [*_dues(session, [one for one in cases if one.ref in followed]).values()]


def _dues(session: Session, cases: Sequence[Case]) -> dict[str, datetime]:
    """Return deadlines of cases by reference; extensions move those of their requests."""
    refs = [one.ref for one in cases]
    query = (
        select(ErasureRequest.case_ref, func.max(ErasureRequest.due_at))
        .where(col(ErasureRequest.case_ref).in_(refs))
        .group_by(col(ErasureRequest.case_ref))
    )
    moved = dict(session.exec(query).all())
    return {one.ref: max(one.due_at, moved.get(one.ref, one.due_at)) for one in cases}


def _scope(services: Services, wanted: QueueQuery) -> _Scope:
    with services.reading() as session:
        model, held = None, kept_by(session, stored(session))
        cases: Sequence[str] = ()
        if wanted.model is not None:
            model = session.exec(select(Model.id).where(Model.ref == wanted.model)).first()
            if model is None:
                raise UnknownModelError(
                    "no model has this reference: GET /v1/models lists them"
                )
        if wanted.requester is not None:
            named = select(BearerToken.name).where(BearerToken.name == wanted.requester)
            known = session.get(RequesterKey, wanted.requester) or session.exec(named).first()
            if known is None:
                raise NotFoundError("no key and no operator's token has this requester's name")
            opened = select(Case.ref).where(Case.opened_by == wanted.requester)
            cases = session.exec(opened.limit(FEW + 1)).all()
    few = cases if len(cases) <= FEW else None
    if wanted.person is None:
        return _Scope(model, None, held, few)
    return _Scope(model, _of_person(services, wanted), held, few)


def _of_person(services: Services, wanted: QueueQuery) -> frozenset[str]:
    """Return the requests that erase, or erased, records of a person."""
    assert wanted.person is not None
    requests: set[str] = set()
    with services.reading() as session:
        refs = None if wanted.model is None else [wanted.model]
        models = people.models_of(services, session, refs)
    for model in models:
        found = people.find(services, model, wanted.person.identity())
        requests.update(found.erased_by)
        with services.reading() as session:
            query = select(Record.claimed_by).where(Record.model_id == model.id)
            claims = rows_in(session, query, col(Record.record), list(found.learned))
            requests.update(one for one in claims if one is not None)
    return frozenset(requests)


def _requests(
    wanted: QueueQuery,
    scope: _Scope,
    state: str,
    after: tuple[datetime, str] | None,
    now: datetime,
) -> Select[Any]:
    due, ref = col(ErasureRequest.due_at), col(ErasureRequest.ref)
    query = columns(*READ).where(col(ErasureRequest.state) == state)
    if scope.model is not None:
        query = query.where(col(ErasureRequest.model_id) == scope.model)
    if scope.requests is not None:
        query = query.where(col(ErasureRequest.id).in_(scope.requests))
    if wanted.requester is not None:
        query = query.where(
            or_(
                col(ErasureRequest.keyid) == wanted.requester,
                _is_opened_by(wanted.requester, scope.cases),
            )
        )
    if wanted.overdue is not None and state not in (*ENDED, PAUSED):
        query = query.where(due < now if wanted.overdue else due >= now)
    if wanted.due_within is not None:
        query = query.where(due < now + timedelta(days=wanted.due_within))
    if wanted.held is not None:
        query = query.where(scope.held.request() if wanted.held else ~scope.held.request())
    if after is not None:
        query = query.where(due >= after[0], or_(due > after[0], ref > after[1]))
    return query.order_by(due, ref).limit(wanted.limit + 1)


def _is_opened_by(requester: str, few: Sequence[str] | None) -> ColumnElement[bool]:
    """Return the condition that a request is of a case that a requester opened.

    Few cases are listed by reference; with many, a scan soon fills a page.
    """
    if few is not None:
        return col(ErasureRequest.case_ref).in_(few)
    own = select(Case.ref).where(
        Case.ref == ErasureRequest.case_ref, Case.opened_by == requester
    )
    return own.exists()


def _not_closed() -> SelectOfScalar[Case]:
    """Return the query of cases that are not closed and have no open request of their own.

    The stored column only preselects: writing it cannot list an open case.
    """
    going_on = select(ErasureRequest.id).where(
        ErasureRequest.case_ref == Case.ref, col(ErasureRequest.state).not_in(CLOSED)
    )
    return select(Case).where(
        col(Case.closed_at).is_(None), col(Case.answered).is_(True), ~going_on.exists()
    )


def _last_due() -> ColumnElement[datetime]:
    """Return the deadline of a case that has no open request, as `_dues` does."""
    own = select(func.max(ErasureRequest.due_at)).where(ErasureRequest.case_ref == Case.ref)
    return func.coalesce(own.scalar_subquery(), col(Case.due_at))


def _answered_cases(
    wanted: QueueQuery, scope: _Scope, after: tuple[datetime, str] | None, now: datetime
) -> SelectOfScalar[Case]:
    due, ref = col(Case.due_at), col(Case.ref)
    query = _not_closed()
    if wanted.requester is not None:
        query = query.where(Case.opened_by == wanted.requester)
    if wanted.overdue:
        query = query.where(_last_due() < now)
    if wanted.due_within is not None:
        query = query.where(_last_due() < now + timedelta(days=wanted.due_within))
    if after is not None:
        query = query.where(due >= after[0], or_(due > after[0], ref > after[1]))
    if wanted.held is not None:
        query = query.where(scope.held.case() if wanted.held else ~scope.held.case())
    return query.order_by(due, ref).limit(wanted.limit + 1)


def _answered_page(
    session: Session,
    wanted: QueueQuery,
    scope: _Scope,
    after: tuple[datetime, str] | None,
    now: datetime,
) -> list[Case]:
    """Return the cases of a page, and one more if there are more.

    Those that follow another's open request have their own deadlines, and nothing else lists
    them. If answered ones are wanted, they are left out; answered ones are not overdue.
    """
    found: list[Case] = []
    while True:
        cases = session.exec(_answered_cases(wanted, scope, after, now)).all()
        found += _wanted(session, wanted, cases, now)
        if len(cases) <= wanted.limit or len(found) > wanted.limit:
            return found[: wanted.limit + 1]
        after = cases[-1].due_at, cases[-1].ref


def _wanted(
    session: Session, wanted: QueueQuery, cases: Sequence[Case], now: datetime
) -> Sequence[Case]:
    if wanted.state != ANSWERED and wanted.overdue is None:
        return cases
    followed, dues = _followed(session, cases), _dues(session, cases)
    found = []
    for one in cases:
        follows = one.ref in followed
        late = follows and dues[one.ref] < now
        if wanted.overdue in (None, late) and not (wanted.state == ANSWERED and follows):
            found.append(one)
    return found


def _followed(session: Session, cases: Sequence[Case]) -> dict[str, str]:
    """Return by case the state of an open request of another that a case follows."""
    requests = {one.ref: [part["request"] for part in one.parts] for one in cases}
    named = sorted({one for several in requests.values() for one in several if one is not None})
    query = select(ErasureRequest.id, ErasureRequest.state)
    going_on = query.where(col(ErasureRequest.state).not_in(CLOSED))
    states = dict(rows_in(session, going_on, col(ErasureRequest.id), named))
    return {
        ref: states[one]
        for ref, several in requests.items()
        for one in several
        if one in states
    }


def _item(request: Row[Any], now: datetime) -> QueueItem:
    """Return a request as an item; `_completed` fills in columns of other tables."""
    return QueueItem(
        ref=request.ref,
        case=request.case_ref,
        model=str(request.model_id),
        state=request.state,
        regulation=request.regulation,
        requester=request.keyid or "",
        assignee=request.assignee,
        received_at=request.received_at,
        due_at=request.due_at,
        days_left=days_left(request.due_at, request.paused_at or now),
        overdue=is_overdue(request, now),
    )


def _of_case(case: Case, due: datetime, followed: str | None, now: datetime) -> QueueItem:
    """Return a case as an item. followed: the state of the request that it follows, if any."""
    return QueueItem(
        ref=case.ref,
        case=case.ref,
        model=None,
        state=followed or ANSWERED,
        regulation=case.regulation,
        requester=case.opened_by,
        assignee=None,
        received_at=case.received_at,
        due_at=due,
        days_left=days_left(due, now),
        overdue=followed is not None and due < now,
    )


def _completed(session: Session, held: Held, items: Sequence[QueueItem]) -> list[QueueItem]:
    """Return items with their models' references, the openers of their cases, and holds."""
    kept = among(session, held, [one.ref for one in items])
    ids = {int(one.model) for one in items if one.model is not None}
    refs = {str(one.id): one.ref for one in read_by_id(session, Model, list(ids))}
    named = {one.case for one in items if one.case is not None}
    openers = dict(
        session.exec(select(Case.ref, Case.opened_by).where(col(Case.ref).in_(named))).all()
    )
    return [
        one.model_copy(
            update={
                "model": None if one.model is None else refs[one.model],
                "requester": one.requester or openers.get(one.case or "", ""),
                "held": one.ref in kept,
            }
        )
        for one in items
    ]
