"""Cases: what an operator does for one person in one or all models, and one answer to it.

A case has a part for each model. What was found there and which request erases it is committed
to by an entry of the log, so that whoever writes the database can put no other request, and no
other person's certificate, into an answer that is signed.
"""

import hmac
import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any

from sqlmodel import Session, col, select

from app.ledger.journal import record_model_event, record_request_event
from app.ledger.sequencer import Transaction
from app.ledger.startup import load_issuer
from app.problems import (
    ConflictError,
    ContributionPendingError,
    NotFoundError,
    ScopeChangedError,
    UnknownRecordError,
)
from app.reconcile.held_out import EVENT as HELD_OUT_ROWS
from app.reconcile.judgement import opened
from app.reconcile.model_events import model_events, request_events, signed_leaves
from app.reconcile.people import PeopleChangedError
from app.schemas.base import format_time
from app.schemas.people import (
    CaseView,
    ContactView,
    FoundPage,
    FoundView,
    HeldOutRemoval,
    HeldOutRemoved,
    NewCase,
    Outcome,
    PartView,
    PersonQuery,
    TimelineItem,
)
from app.schemas.requests import NewRequest, Scope
from app.service import certificates, held_out, people, registry
from app.service.admission import RECEIVED, choose
from app.service.context import Services
from app.service.deadlines import due_at
from app.service.people import Found
from app.service.requests import CLOSED, certificate_path
from app.service.scope import changed, check_size, claim, covers, named_places
from lethe import canonical
from lethe.certificates.case_summary import CasePart, CasePredicate, build_summary
from lethe.certificates.dsse import sign_envelope
from lethe.identity import Identity
from lethe.log.entries import (
    ERASURE_EVENT,
    CommitmentError,
    EntryError,
    parse_leaf,
)
from models import (
    Case,
    Certificate,
    Contribution,
    ErasureRequest,
    Job,
    Model,
    Record,
    RequestEvent,
)
from models.clock import clock
from models.session import chunks

OPENED, CONTACT, CLOSED_CASE = "case.opened", "case.contact", "case.closed"
# What was found in a model, before anything is done about it.
ERASING, ONLY_HELD_OUT, BEFORE, NOTHING = "erasing", "held out", "erased", "nothing"
_ENDED: dict[str, Outcome] = {
    ONLY_HELD_OUT: "held out only",
    BEFORE: "erased before",
    NOTHING: "nothing found",
}
CONTACT_DAYS = 90  # after its deadline a case's contact is destroyed, closed or not


UNLOGGED = (
    "the case is not as it was logged: run `lethe log fsck`, and restore the table cases from "
    "a backup"
)
UNLIKE = "the database and the log disagree on a request of the case: run `lethe log fsck`"


class _Anybody:
    """The binding of an operator, who reaches every record."""

    client: str | None = None
    subject: str | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """A part as the row has it. request, request_ref: of what erases, or erased, it.

    removed: held-out rows of the person that were stored, and are not any more; removal_index:
    of the entry that says so.
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
        """Return the digest by which the log's entry of the part commits to it and its case."""
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


def find(services: Services, wanted: PersonQuery) -> FoundPage:
    """Look a person up in some models or in all.

    Raises:
        PeopleChangedError: The identities of one are not those of the log.
        UnknownModelError: There is no such model.
    """
    found = _find(services, wanted.person.identity(), wanted.models)
    return FoundPage(
        items=[
            FoundView(
                model=one.model.ref,
                records=list(one.learned),
                held_out=list(one.held_out),
                erased=one.erased,
            )
            for one in found
        ]
    )


def _find(services: Services, person: Identity, refs: Sequence[str] | None) -> list[Found]:
    with services.reading() as session:
        models = people.models_of(services, session, refs)
    return [people.find(services, model, person) for model in models]


def open_case(services: Services, wanted: NewCase, operator: str) -> CaseView:
    """Look a person up, submit a request for each model that has records, and log both.

    Raises:
        PeopleChangedError: The identities of a model are not those of the log.
        ContributionPendingError: Rows are still being learned that may be the person's.
        ModelNotReadyError: A model that has records of the person has no fitted version.
        ConflictError: There is no model.
        ScopeTooLargeError: More records in a model than a request may name.
    """
    person = wanted.person.identity()
    found = _find(services, person, wanted.models)
    if not found:
        raise ConflictError("no model is registered: there is nothing to search")
    for one in found:
        check_size(one.learned, services.settings.max_scope_records)
        choose(one.model, _request_for(wanted, one)) if one.learned else None

    def effect(tx: Transaction) -> tuple[str, list[str]]:
        case = Case(
            ref=str(uuid.uuid4()),
            opened_by=operator,
            regulation=wanted.regulation,
            key=secrets.token_bytes(32),
            parts=[],
            ticket=wanted.ticket,
            checked=wanted.checked,
            contact=wanted.contact,
            received_at=tx.now,
            due_at=due_at(tx.now, wanted.regulation),
        )
        jobs: list[str] = []
        parts = [_open_part(services, tx, case, wanted, person, one, jobs) for one in found]
        case.parts = parts
        tx.session.add(case)
        tx.session.flush()
        return case.ref, jobs

    ref, jobs = services.ledger.transact(effect)
    for job in jobs:
        services.dispatcher.nudge(job)
    return show(services, ref)


def _request_for(wanted: NewCase, found: Found) -> NewRequest:
    scope = Scope(level="sample", records=list(found.learned))
    return NewRequest(model=found.model.ref, scope=scope, regulation=wanted.regulation)


def _open_part(
    services: Services,
    tx: Transaction,
    case: Case,
    wanted: NewCase,
    person: Identity,
    seen: Found,
    jobs: list[str],
) -> dict[str, Any]:
    session = tx.session
    pending = select(Contribution.id).where(
        Contribution.model_id == seen.model.id, Contribution.state == "received"
    )
    if session.exec(pending.limit(1)).first() is not None:
        raise ContributionPendingError(
            f"rows contributed to the model {seen.model.ref} are still being learned: "
            "try again in a minute, or name the other models"
        )
    model = session.get_one(Model, seen.model.id)
    # The rows that were believed, and no others: their model's identities were those logged.
    if people.looked_up(session, services.master, model, person).rows != seen.rows:
        raise changed()
    kind, records, request_id = NOTHING, 0, None
    if seen.learned:
        kind, records = ERASING, len(seen.learned)
        request_id = _claimant(services, session, model, seen.learned)
        if request_id is None:
            request_id = _submit(tx, case, wanted, model, seen, jobs)
    elif seen.erased:
        kind, records = BEFORE, seen.erased
        request_id = seen.erased_by[-1] if seen.erased_by else None
    elif seen.held_out:
        kind, records = ONLY_HELD_OUT, len(seen.held_out)
    removed, removal_index = _remove_held_out(services, tx, model, seen)
    assert case.key is not None
    request_ref = None
    if request_id is not None:
        request_ref = session.get_one(ErasureRequest, request_id).ref
    part = _Part(
        model.ref,
        kind,
        records,
        request_id,
        request_ref,
        removed,
        removal_index,
        tx.next_index,
    )
    said = {
        "contact": _contact_digest(case.key, case.contact),
        "part": part.commitment(case, case.key),
    }
    index = record_model_event(tx, model.ref, OPENED, said)
    assert index == part.log_index
    return asdict(part)


def _remove_held_out(
    services: Services, tx: Transaction, model: Model, seen: Found
) -> tuple[int, int | None]:
    """Remove the person's held-out rows; return how many were stored, and the log index.

    No model was fitted on them: nothing is left to do but to measure later versions without.
    """
    if not seen.held_out:
        return 0, None
    gone, index = held_out.remove(services, tx, model, seen.held_out)
    people.bury(services, tx, model, {}, dict.fromkeys(gone))
    return len(gone), index


def remove_held_out(services: Services, wanted: HeldOutRemoval) -> HeldOutRemoved:
    """Remove stored held-out rows by their ids, all of them or none.

    Raises:
        UnknownModelError: There is no such model.
        UnknownRecordError: Some are of no stored held-out row; the problem has their places.
        HeldOutChangedError: The rows are not stored as they were logged.
    """

    def effect(tx: Transaction) -> HeldOutRemoved:
        model = registry.find(tx.session, wanted.model)
        records = wanted.records
        gone, index = held_out.remove(services, tx, model, records)
        known = set(gone)
        unknown = [place for place, one in enumerate(records, 1) if one not in known]
        if unknown or index is None:
            raise UnknownRecordError(
                f"{len(unknown)} of {len(records)} records are no stored held-out rows of the "
                f"model; by their places in the list: {named_places(unknown)}",
                places=named_places(unknown),
            )
        people.bury(services, tx, model, {}, dict.fromkeys(gone))
        return HeldOutRemoved(removed=len(gone), log_index=index)

    return services.ledger.transact(effect)


def _contact_digest(key: bytes, contact: str | None) -> str:
    """Return the digest by which the log commits to where the answer goes."""
    return hmac.digest(key, b"contact\0" + (contact or "").encode(), "sha256").hex()


def _claimant(
    services: Services, session: Session, model: Model, records: Sequence[str]
) -> str | None:
    """Return the open request that erases all of these records, None if none is erased yet.

    Raises:
        PeopleChangedError: The model does not hold a record that has identities, or the log
            has the request with another scope.
        ConflictError: Some are being erased by other requests, and not all by one, or the
            request is not open any more.
    """
    claims: dict[str, str | None] = {}
    for chunk in chunks(list(records)):
        query = select(Record.record, Record.claimed_by).where(
            Record.model_id == model.id, col(Record.record).in_(chunk)
        )
        claims |= dict(session.exec(query).all())
    if len(claims) != len(records):
        raise PeopleChangedError(
            "a record with identities is not in the training set: run `lethe log fsck`"
        )
    by = set(claims.values())
    if by == {None}:
        return None
    if len(by) > 1:
        raise ConflictError(
            f"some of the person's records in the model {model.ref} are being erased by an "
            "earlier request: try again once it is certified"
        )
    request_id = by.pop()
    assert request_id is not None
    _check_covers(services, session, model, request_id, records)
    return request_id


def _check_covers(
    services: Services, session: Session, model: Model, request_id: str, records: Sequence[str]
) -> None:
    """Check that an open request erases these records, as the log has its scope.

    A claim in the table `records` is anybody's who writes the database: without this, the
    certificate of another person's request would answer the case.
    """
    request = session.get_one(ErasureRequest, request_id)
    try:
        events = opened(session, request, request_events(services.ledger, request.ref))
    except (CommitmentError, EntryError):
        raise PeopleChangedError(UNLIKE) from None
    received = [event.payload for event in events if event.event == RECEIVED]
    if not received:
        raise ConflictError(
            f"an earlier request for the person's records in the model {model.ref} is not open "
            "any more: see its status, then try again"
        )
    scope = Scope.model_validate(received[0]["scope"])
    if received[0]["model"] != model.ref or not covers(session, model.id, scope, records):
        raise PeopleChangedError(UNLIKE)


def _submit(
    tx: Transaction,
    case: Case,
    wanted: NewCase,
    model: Model,
    found: Found,
    jobs: list[str],
) -> str:
    """Submit a request for the records of a person, as `app.service.admission` does."""
    session, new = tx.session, _request_for(wanted, found)
    method = choose(model, new)
    assert model.id is not None
    scope = new.scope.model_dump(exclude_none=True)
    request = ErasureRequest(
        id=str(uuid.uuid4()),
        ref=str(uuid.uuid4()),
        model_id=model.id,
        keyid=None,
        method=method,
        scope=scope,
        regulation=new.regulation,
        event_key=secrets.token_bytes(32),
        log_index=tx.next_index,
        body_digest=sha256(canonical.encode(scope)).hexdigest(),
        received_at=tx.now,
        due_at=case.due_at,
    )
    session.add(request)
    session.flush()
    if claim(session, model.id, _Anybody(), new.scope, request.id) != len(found.learned):
        raise ScopeChangedError("a record of the person was claimed just now: try again")
    received = {
        "model": model.ref,
        "method": method,
        "scope": scope,
        "records": len(found.learned),
        "keyid": None,
        "regulation": new.regulation,
        "due_at": format_time(request.due_at),
        "body": request.body_digest,
    }
    record_request_event(tx, request, RECEIVED, received)
    assert case.key is not None
    on_behalf = {
        "case": case.ref,
        "by": case.opened_by,
        "ticket": hmac.digest(case.key, b"ticket\0" + wanted.ticket.encode(), "sha256").hex(),
        "checked": wanted.checked,
    }
    record_request_event(tx, request, "request.on-behalf", on_behalf)
    job = Job(
        id=str(uuid.uuid4()),
        model_id=model.id,
        kind="erase",
        request_id=request.id,
        stage="execute",
        created_at=tx.now,
    )
    session.add(job)
    session.flush()
    jobs.append(job.id)
    return request.id


def show(services: Services, ref: str) -> CaseView:
    """Return a case with its parts and timeline.

    Raises:
        NotFoundError: There is none.
        PeopleChangedError: Its parts are not those that the log commits to.
    """
    with services.reading() as session:
        case = _find_case(session, ref)
        parts = _parts(services, case)
        views = [_view(session, part) for part in parts]
        timeline = [item for part in parts for item in _timeline(session, case, part)]
        now = clock(session)
    is_open = any(view.outcome == "in progress" for view in views)
    return CaseView.model_validate(
        {
            "ref": case.ref,
            "state": "closed" if case.closed_at else "open" if is_open else "answered",
            "regulation": case.regulation,
            "opened_by": case.opened_by,
            "received_at": case.received_at,
            "due_at": case.due_at,
            "overdue": is_open and case.due_at < now,
            "closed_at": case.closed_at,
            "parts": views,
            "timeline": sorted(timeline, key=lambda item: item.log_index),
        }
    )


def _find_case(session: Session, ref: str) -> Case:
    case = session.get(Case, ref)
    if case is None:
        raise NotFoundError("no case has this reference")
    return case


def _parts(services: Services, case: Case) -> list[_Part]:
    """Return the parts of a case, once the log has them as the row does.

    At the end of retention the key is destroyed, and with it what opens the entries.
    """
    parts = [_Part(**part) for part in case.parts]
    if case.key is None:
        return parts
    for part in parts:
        if _logged(services, part).get("part") != part.commitment(case, case.key):
            raise PeopleChangedError(UNLOGGED)
    return parts


def _logged(services: Services, part: _Part) -> Mapping[str, str]:
    """Return the digests of the log's entry of a part, none where it has no such entry."""
    logged = model_events(services.ledger, part.model, OPENED)
    place = logged.before(part.log_index)
    if place >= len(logged) or logged[place][0] != part.log_index:
        return {}
    return logged[place][1].digests


def _view(session: Session, part: _Part) -> PartView:
    outcome, certificate = _ENDED.get(part.found), None
    if outcome is None:
        request = session.get_one(ErasureRequest, part.request)
        outcome = request.state if request.state in (*CLOSED, "failed") else "in progress"  # type: ignore[assignment]
    if part.request is not None and session.get(Certificate, part.request) is not None:
        certificate = certificate_path(part.request)
    return PartView(
        model=part.model,
        outcome=outcome or "in progress",
        records=part.records,
        request=part.request,
        certificate=certificate,
        held_out_removed=part.removed,
        removal_log_index=part.removal_index,
        log_index=part.log_index,
    )


def _timeline(session: Session, case: Case, part: _Part) -> list[TimelineItem]:
    items = [
        TimelineItem(
            at=case.received_at, model=part.model, event=OPENED, log_index=part.log_index
        )
    ]
    if part.removal_index is not None:
        items.append(
            TimelineItem(
                at=case.received_at,
                model=part.model,
                event=HELD_OUT_ROWS,
                log_index=part.removal_index,
            )
        )
    if part.request is None:
        return items
    events = session.exec(select(RequestEvent).where(RequestEvent.request_id == part.request))
    return items + [
        TimelineItem(at=one.at, model=part.model, event=one.event, log_index=one.log_index)
        for one in events
    ]


def summary(services: Services, ref: str) -> bytes:
    """Return the signed answer to a case: a DSSE envelope in canonical JSON.

    Raises:
        NotFoundError: There is none.
        ConflictError: A part is still in progress, or the case's retention has ended.
        PeopleChangedError: Its parts are not those that the log commits to.
    """
    shown = show(services, ref)
    if shown.state == "open":
        raise ConflictError("a part of the case is still in progress: see its parts")
    with services.reading() as session:
        case = _find_case(session, ref)
    if case.key is None:  # whoever writes the database can end it too, and then write the parts
        raise ConflictError(
            "the case's retention has ended, and with it what compares the case with the log: "
            "use the answer that was downloaded before"
        )
    refs = {part.model: part.request_ref for part in _parts(services, case)}
    ends = _logged_ends(services, {one for one in refs.values() if one is not None})
    parts = []
    for part in shown.parts:
        assert part.outcome != "in progress"
        request_ref, digest = refs[part.model], None
        if request_ref is not None and part.request is not None:
            end = ends.get(request_ref)
            if part.outcome not in (end, *_ENDED.values()):
                raise PeopleChangedError(UNLIKE)
            if end == "certified":
                digest = _certificate(services, part.request, request_ref)
        answer = CasePart(
            part.model,
            part.outcome,
            part.records,
            digest,
            part.held_out_removed,
            part.removal_log_index,
            part.log_index,
        )
        parts.append(answer)
    payload = build_summary(
        CasePredicate(
            case=case.ref,
            regulation=shown.regulation,
            received_at=case.received_at.replace(microsecond=0),
            due_at=case.due_at.replace(microsecond=0),
            parts=tuple(parts),
        )
    )
    key, keyid = load_issuer(services.settings)
    return canonical.encode(sign_envelope(payload, key, keyid))


def _logged_ends(services: Services, refs: set[str]) -> dict[str, str]:
    """Return how the log has requests as ended. All leaves are read, 100,000 in 1.8 s."""
    wanted = {ref.encode() for ref in refs}
    ends: dict[str, str] = {}
    leaves = signed_leaves(services.ledger, lambda data: any(ref in data for ref in wanted))
    for _, data in leaves if refs else ():
        leaf = parse_leaf(data)
        end = (leaf.event or "").removeprefix("request.")
        if leaf.kind == ERASURE_EVENT and leaf.ref in refs and end in (*CLOSED, "failed"):
            ends[leaf.ref] = end
    return ends


def _certificate(services: Services, request_id: str, request_ref: str) -> str:
    """Return the digest of a request's certificate, once it verifies and is that request's."""
    file = certificates.bundle(services, request_id)
    verdict = certificates.verify(services, file, None, None)
    if verdict.statement is None or verdict.statement.predicate.request_ref != request_ref:
        raise PeopleChangedError(UNLIKE)
    return sha256(file).hexdigest()


def open_contact(services: Services, ref: str, operator: str) -> ContactView:
    """Return a case's contact address; who opened it is logged first.

    Raises:
        NotFoundError: There is no such case, or its contact was destroyed or never given.
        PeopleChangedError: It is not the contact, or not the case, that was logged.
    """

    def effect(tx: Transaction) -> ContactView:
        case = _find_case(tx.session, ref)
        if case.contact is None:
            raise NotFoundError("the case has no contact address, or it was destroyed")
        contact = _contact_digest(case.key or b"", case.contact)
        if any(
            _logged(services, part).get("contact") != contact for part in _parts(services, case)
        ):
            raise PeopleChangedError(UNLOGGED)
        said = _act(tx, case, CONTACT, operator)
        index = record_model_event(tx, case.parts[0]["model"], CONTACT, said)
        return ContactView(contact=case.contact, log_index=index)

    return services.ledger.transact(effect)


def close(services: Services, ref: str, operator: str) -> CaseView:
    """Close an answered case: its contact address is destroyed. Closing it again does nothing.

    Raises:
        NotFoundError: There is none.
        ConflictError: A part is still in progress.
    """
    if show(services, ref).state == "open":
        raise ConflictError("a part of the case is still in progress: see its parts")

    def effect(tx: Transaction) -> None:
        case = _find_case(tx.session, ref)
        if case.closed_at is None:
            said = _act(tx, case, CLOSED_CASE, operator)
            record_model_event(tx, case.parts[0]["model"], CLOSED_CASE, said)
            case.contact, case.closed_at = None, tx.now
            tx.session.flush()

    services.ledger.transact(effect)
    return show(services, ref)


def _act(tx: Transaction, case: Case, event: str, operator: str) -> dict[str, str]:
    """Return the digest by which the log, under the first model, has what an operator did."""
    said = {"at": format_time(tx.now), "by": operator, "case": case.ref, "event": event}
    return {"part": hmac.digest(case.key or b"", canonical.encode(said), "sha256").hex()}


def forget(services: Services) -> int:
    """Destroy contacts that nobody needs any more, and what is kept of ended cases.

    A contact goes CONTACT_DAYS after the deadline at the latest; ticket, what was checked, and
    the key of its entries go after the retention of requests. Returns how many cases changed.
    """
    with services.reading() as session:
        if not _forgettable(services, session, clock(session)):
            return 0

    def effect(tx: Transaction) -> int:
        due = _forgettable(services, tx.session, tx.now)
        kept = timedelta(days=services.settings.request_retention_days)
        for case in due:
            case.contact = None
            if case.received_at < tx.now - kept:
                case.ticket = case.checked = case.key = None
        tx.session.flush()
        return len(due)

    return services.ledger.transact(effect, checkpoint=False)


AT_ONCE = 100  # cases in one transaction


def _forgettable(services: Services, session: Session, now: Any) -> list[Case]:
    kept = timedelta(days=services.settings.request_retention_days)
    late = (col(Case.due_at) < now - timedelta(days=CONTACT_DAYS)) & col(Case.contact).is_not(
        None
    )
    ended = (col(Case.received_at) < now - kept) & col(Case.key).is_not(None)
    return list(session.exec(select(Case).where(late | ended).limit(AT_ONCE)).all())
