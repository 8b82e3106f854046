"""Parts of a case: the data found in a model, and the request that erases it.

Whatever is answered about a case uses only parts that the log commits to.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from sqlmodel import Session, col, or_, select

from app.ledger.receipt import UnpublishedError
from app.problems import NotFoundError
from app.reconcile.case_parts import Part, logged_parts, stored_parts
from app.reconcile.judgement import CERTIFIED
from app.reconcile.model_events import signed_leaf
from app.reconcile.people import PeopleChangedError
from app.schemas.people import Outcome
from app.service.context import Services
from lethe.log.entries import ERASURE_EVENT
from models import Case, ErasureRequest, LogEntry, Model, RequestEvent

T = TypeVar("T")
# The kinds of data found in a model, before anything is done about it, besides FOLLOWING:
# somebody else's request erases it; if that one ends otherwise, the case gets one of its own.
ERASING, ONLY_HELD_OUT = "erasing", "held out"
BEFORE, NOTHING = "erased", "nothing"
ENDED: dict[str, Outcome] = {
    ONLY_HELD_OUT: "held out only",
    BEFORE: "erased before",
    NOTHING: "nothing found",
}
UNLOGGED = (
    "the case is not as it was logged: run `lethe log fsck`, and restore the table cases from "
    "a backup"
)
UNLIKE = "the database and the log disagree on a request of the case: run `lethe log fsck`"


def consistent(services: Services, read: Callable[[Session], T]) -> T:
    """Return what `read` finds in a snapshot; once more if table and log disagree in it.

    Another process may have changed both since the snapshot, or be about to sign what it has.
    Not for use in a transaction. Raises what `read` raises the second time, and as
    `Ledger.publish_checkpoint`.
    """
    try:
        with services.reading() as session:
            return read(session)
    except PeopleChangedError:
        services.ledger.publish_checkpoint()
    with services.reading() as session:
        return read(session)


def load(services: Services, session: Session, ref: str) -> tuple[Case, list[Part]]:
    """Return a case with its parts; for a request without a case, one with a single part."""
    if (case := session.get(Case, ref)) is not None:
        return case, parts_of(services, case)
    named = or_(ErasureRequest.ref == ref, ErasureRequest.id == ref)
    request = session.exec(select(ErasureRequest).where(named)).first()
    if request is None:
        raise NotFoundError("no case and no request has this reference: see `lethe case list`")
    received = session.get(RequestEvent, request.log_index)
    part = Part(
        session.get_one(Model, request.model_id).ref,
        ERASING,
        0 if received is None else received.payload["records"],
        request.id,
        request.ref,
        0,
        None,
        request.log_index,
    )
    alone = Case(
        ref=request.ref,
        opened_by=request.keyid or "",
        regulation=request.regulation,
        key=bytes(request.event_key) or None,
        parts=[],
        received_at=request.received_at,
        due_at=request.due_at,
    )
    return alone, [part]


def find_case(session: Session, ref: str) -> Case:
    """Return a case. Raises NotFoundError if there is none."""
    case = session.get(Case, ref)
    if case is None:
        raise NotFoundError("no case has this reference")
    return case


def parts_of(services: Services, case: Case) -> list[Part]:
    """Return the parts of a case. Raises PeopleChangedError unless the log commits to them.

    After retention they are unchecked: the key that opens the entries is destroyed.
    """
    if case.key is None:
        return stored_parts(case)
    parts = logged_parts(services.ledger, case)
    if parts is None:
        raise PeopleChangedError(UNLOGGED)
    return parts


def is_anothers(session: Session, case: Case, part: Part) -> bool:
    """Return whether a part's request, if any, is not the case's own.

    Before parts had the kind FOLLOWING, only the request named its case.
    """
    if part.found == ERASING and part.request is not None and case.parts:
        request = session.get(ErasureRequest, part.request)
        return request is not None and request.case_ref != case.ref
    return part.found != ERASING


def certified_at(services: Services, session: Session, ref: str) -> int | None:
    """Return the index of a request's certification in the signed log, None if it has none.

    The columns only say where to look: the leaf decides, in a published tree.
    """
    query = select(LogEntry.index).where(LogEntry.ref == ref, LogEntry.event == CERTIFIED)
    for index in session.exec(query.order_by(col(LogEntry.index))):
        with suppress(UnpublishedError):
            leaf = signed_leaf(services.ledger, index)
            if (leaf.kind, leaf.event, leaf.ref) == (ERASURE_EVENT, CERTIFIED, ref):
                return index
    return None


def requests_in(services: Services, case: Case) -> list[str]:
    """Return the ids of the requests of a case. Raises PeopleChangedError as `show`."""
    return [part.request for part in parts_of(services, case) if part.request is not None]
