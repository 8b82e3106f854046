"""Requests for the people of cases: submitted, followed, and submitted anew.

Where somebody else's request already erases a person's records, the case follows it. That
request may end without a certificate: withdrawn, refused, abandoned. The transaction that ends
it then submits a request of the case's own, so nobody cancels the erasure of another person.
"""

import secrets
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any, Self

from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, col, select

from app import logs
from app.ledger import callback_rows
from app.ledger.journal import record_model_event, record_request_event
from app.ledger.transaction import Transaction
from app.problems import ScopeChangedError
from app.reconcile.approval import ON_BEHALF, SHARED_WITH
from app.reconcile.case_parts import FOLLOWING, OPENED, REPLACES, Part, contact_digest
from app.reconcile.judgement import RECEIVED, opened
from app.reconcile.people import PeopleChangedError
from app.schemas.base import format_time
from app.schemas.requests import Scope
from app.service.context import Services
from app.service.parts import ERASING, parts_of
from app.service.review import start
from app.service.scope import claim
from app.vault.master import RootSecret
from app.vault.request_ref import request_ref
from app.vault.wipe import DELETED
from lethe import canonical
from lethe.errors import LetheError
from lethe.log.entries import CommitmentError, EntryError, Leaf
from models import Callback, Case, ErasureRequest, Job, Model, Record
from models.database.session import rows_in

FOLLOWED = "request.followed"


class _Anybody:
    """The binding of an operator, who reaches every record."""

    client: str | None = None
    subject: str | None = None


def submit(
    tx: Transaction,
    case: Case,
    model: Model,
    method: str,
    records: Sequence[str],
    on_behalf: Mapping[str, Any],
    root_secret: RootSecret,
) -> tuple[ErasureRequest, Job]:
    """Submit a case's request for some records, as `app.service.admission` does.

    on_behalf: the payload of its second entry: who submits it, and what was checked.

    Raises ScopeChangedError if another request claimed one of the records just now.
    """
    session, named = tx.session, Scope(level="sample", records=list(records))
    assert model.id is not None
    scope = named.model_dump(exclude_none=True)
    begins = start(model, None, tx.now)
    request_id = str(uuid.uuid4())
    request = ErasureRequest(
        id=request_id,
        ref=request_ref(root_secret, request_id),
        model_id=model.id,
        keyid=None,
        state=begins.state,
        held_until=begins.held_until,
        case_ref=case.ref,
        method=method,
        scope=scope,
        regulation=case.regulation,
        event_key=secrets.token_bytes(32),
        log_index=tx.next_index,
        body_digest=sha256(canonical.encode(scope)).hexdigest(),
        received_at=tx.now,
        due_at=case.due_at,
    )
    session.add(request)
    session.flush()
    if claim(session, model.id, _Anybody(), named, request.id) != len(records):
        raise ScopeChangedError(
            "a record of the person was just claimed by another request: try again"
        )
    received = {
        "model": model.ref,
        "method": method,
        "scope": scope,
        "records": len(records),
        "keyid": None,
        "binding": None,
        "regulation": request.regulation,
        "due_at": format_time(request.due_at),
        "body": request.body_digest,
    }
    record_request_event(tx, request, RECEIVED, received)
    record_request_event(tx, request, ON_BEHALF, dict(on_behalf))
    job = Job(
        id=str(uuid.uuid4()),
        model_id=model.id,
        kind="erase",
        request_id=request.id,
        call_id=logs.call_id(),
        stage=begins.stage,
        created_at=tx.now,
    )
    session.add(job)
    session.flush()
    return request, job


def follow(
    tx: Transaction,
    request: ErasureRequest,
    records: Sequence[str],
    on_behalf: Mapping[str, Any],
) -> None:
    """Log that a case follows an open request of somebody else.

    The entry holds what a request of the case's own needs, and is destroyed with the request's
    other entries. on_behalf: as for `submit`; it names the case.
    """
    said = {
        "case": on_behalf["case"],
        "records": list(records),
        "on_behalf": dict(on_behalf),
    }
    record_request_event(tx, request, FOLLOWED, said)


def log_part(tx: Transaction, case: Case, part: Part, earlier: Part | None = None) -> None:
    """Log the entry that commits to a part; its index is the part's.

    earlier: the part that it replaces.
    """
    assert case.key is not None
    said = {
        "contact": contact_digest(case.key, case.contact),
        "part": part.commitment(case, case.key),
    }
    if earlier is not None:
        said[REPLACES] = earlier.replaced(case.key)
    index = record_model_event(tx, part.model, OPENED, said)
    assert index == part.log_index


@dataclass(frozen=True, slots=True)
class _Follower:
    """A case that followed a request which has ended, and the records that it still needs."""

    case: Case
    place: int
    part: Part
    records: frozenset[str]
    on_behalf: Mapping[str, Any]

    @classmethod
    def read(
        cls,
        services: Services,
        session: Session,
        request: ErasureRequest,
        model: Model,
        said: Mapping[str, Any],
    ) -> Self | None:
        """Return the follower of an entry; None if it needs no request, or can have none.

        Its part then fails: the records are gone, or the case is not as it was logged.
        """
        case = session.get(Case, said["case"])
        if case is None or case.key is None or model.state == DELETED:
            return None
        try:
            parts = parts_of(services, case)
        except PeopleChangedError:
            return None
        places = [
            place
            for place, part in enumerate(parts)
            if (part.found, part.request, part.model) == (FOLLOWING, request.id, model.ref)
        ]
        records = _unclaimed(session, model, said["records"])
        if not places or not records:
            return None
        return cls(case, places[0], parts[places[0]], records, said["on_behalf"])


def continue_without(
    services: Services,
    tx: Transaction,
    request: ErasureRequest,
    model: Model,
    leaves: Sequence[tuple[int, Leaf]],
) -> None:
    """Submit requests for the cases that followed one which ends now without a certificate.

    leaves: of the request, before its end. Runs after its claims were released. Cases that
    share records get one request, which one submits and the others follow. Who asked for more
    of its records than that one is named in it, too.
    """
    if all(leaf.event != FOLLOWED for _, leaf in leaves):
        return
    session = tx.session
    try:
        events = opened(session, request, leaves)
    except (CommitmentError, EntryError):
        return  # the cases' parts fail, and fsck has a finding
    session.flush()
    found = (
        _Follower.read(services, session, request, model, one.payload)
        for one in events
        if one.event == FOLLOWED
    )
    for group in _groups(one for one in found if one is not None):
        records = sorted(frozenset[str]().union(*(one.records for one in group)))
        first, *others = group
        # Nobody approves a request for what they asked for, although another submits it.
        more = [dict(one.on_behalf) for one in others if not one.records <= first.records]
        said_of = {**first.on_behalf, SHARED_WITH: more} if more else first.on_behalf
        own, _ = submit(
            tx, first.case, model, model.method, records, said_of, services.root_secret
        )
        _replace(tx, first, ERASING, own)
        for one in others:
            follow(tx, own, sorted(one.records), one.on_behalf)
            _replace(tx, one, FOLLOWING, own)
        _call_back(services, tx, request, own)


def _unclaimed(session: Session, model: Model, records: Sequence[str]) -> frozenset[str]:
    free = (Record.model_id == model.id, col(Record.claimed_by).is_(None))
    query = select(Record.record).where(*free)
    return frozenset(rows_in(session, query, col(Record.record), records))


def _groups(followers: Iterable[_Follower]) -> list[list[_Follower]]:
    """Return the followers in groups that share no record: a record has one claimant."""
    groups: list[list[_Follower]] = []
    for one in followers:
        joined = [
            group
            for group in groups
            if any(not one.records.isdisjoint(other.records) for other in group)
        ]
        groups = [group for group in groups if group not in joined]
        groups.append([*(other for group in joined for other in group), one])
    return groups


def _replace(tx: Transaction, one: _Follower, found: str, request: ErasureRequest) -> None:
    """Log and store a follower's part with another request."""
    part = replace(
        one.part,
        found=found,
        records=len(one.records),
        request=request.id,
        request_ref=request.ref,
        log_index=tx.next_index,
    )
    log_part(tx, one.case, part, one.part)
    # A new list: the column notices no change within the old one.
    one.case.parts = [
        asdict(part) if place == one.place else stored
        for place, stored in enumerate(one.case.parts)
    ]
    tx.session.flush()


def _call_back(
    services: Services, tx: Transaction, ended: ErasureRequest, own: ErasureRequest
) -> None:
    """Have the callbacks of agents that follow an ended request follow the new one too."""
    session, key = tx.session, services.ledger.entry_key
    assert key is not None
    dialect = sqlite if session.get_bind().dialect.name == "sqlite" else postgresql
    wanted = Callback.ref == ended.ref, Callback.kind != callback_rows.REQUEST
    for name in session.exec(select(Callback.id).where(*wanted)).all():
        try:
            row = session.get(Callback, (name, ended.ref))
        except (LetheError, ValueError):  # sealed for another place
            continue
        if row is None or not callback_rows.is_authentic(key, row):
            continue
        made = callback_rows.new_rows(
            key, row.kind, row.owner, row.request, row.url, [own.ref], tx.now
        )
        session.connection().execute(
            dialect.insert(Callback).values(made).on_conflict_do_nothing()
        )
