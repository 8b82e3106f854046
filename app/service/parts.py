"""Parts of a case: the data found in a model, and the request that erases it.

An entry of the log commits to each part, so that write access to the database is not enough to
put another request, or another person's certificate, into a signed answer.
"""

import hmac
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from sqlmodel import Session, col, or_, select

from app.ledger.receipt import UnpublishedError
from app.problems import NotFoundError
from app.reconcile.judgement import CERTIFIED
from app.reconcile.model_events import model_events, signed_leaf
from app.reconcile.people import PeopleChangedError
from app.schemas.base import format_time
from app.schemas.people import Outcome
from app.service.context import Services
from lethe import canonical
from lethe.log.entries import ERASURE_EVENT
from models import Case, ErasureRequest, LogEntry, Model, RequestEvent

OPENED = "case.opened"
# The kinds of data found in a model, before anything is done about it. FOLLOWING: somebody
# else's request erases it; if that one ends otherwise, the case gets a request of its own.
ERASING, FOLLOWING, ONLY_HELD_OUT = "erasing", "following", "held out"
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


@dataclass(frozen=True, slots=True)
class Part:
    """A part as stored in the row. request, request_ref: of the request that erases it.

    removed: how many held-out rows of the person were removed; removal_index: of the log entry
    of the removal.
    """

    model: str
    found: str
    records: int
    request: str | None
    request_ref: str | None
    removed: int
    removal_index: int | None
    log_index: int

    def commitment(self, case: Case, key: bytes) -> str:
        """Return the digest by which the log commits to the part and its case."""
        said = {
            "case": case.ref,
            "due_at": format_time(case.due_at),
            "found": self.found,
            "model": self.model,
            "opened_by": case.opened_by,
            "received_at": format_time(case.received_at),
            "records": str(self.records),
            "regulation": case.regulation,
            "removal_index": "" if self.removal_index is None else str(self.removal_index),
            "removed": str(self.removed),
            "request": self.request or "",
            "request_ref": self.request_ref or "",
        }
        return hmac.digest(key, canonical.encode(said), "sha256").hex()


def contact_digest(key: bytes, contact: str | None) -> str:
    """Return the digest by which the log commits to the contact address."""
    return hmac.digest(key, b"contact\0" + (contact or "").encode(), "sha256").hex()


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
    parts = [Part(**part) for part in case.parts]
    if case.key is None:
        return parts
    for part in parts:
        if logged_part(services, part).get("part") != part.commitment(case, case.key):
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


def logged_part(services: Services, part: Part) -> Mapping[str, str]:
    """Return the digests of the log's entry of a part, none if it has no such entry."""
    logged = model_events(services.ledger, part.model, OPENED)
    place = logged.before(part.log_index)
    if place >= len(logged) or logged[place][0] != part.log_index:
        return {}
    return logged[place][1].digests
