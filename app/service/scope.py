"""Resolves a scope to records, and checks who may erase them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from sqlalchemy import ColumnElement, Row, Select, func, insert, update
from sqlalchemy import select as columns
from sqlmodel import Session, col, select

from app.problems import (
    AlreadyErasedError,
    ContributionPendingError,
    ScopeChangedError,
    ScopeTooLargeError,
    UnknownRecordError,
)
from app.schemas.requests import Level, Scope
from app.vault.master import ADD_BACK, RootSecret, open_tombstone_key, record_tag
from lethe.log.entries import parse_leaf
from lethe.signing.errors import KeyNotEntitledError
from models import (
    Contribution,
    ErasureRequest,
    LogEntry,
    Model,
    Record,
    RequesterKey,
    Subject,
    Tombstone,
)
from models.database.session import chunks, rows_in


def has_tombstone(
    session: Session, model_id: int | None, tombstone_key: bytes, records: Sequence[str]
) -> bool:
    """Return whether one of at most CHUNK records was erased from a model."""
    return bool(_tombstones(session, model_id, tombstone_key, records))


def may_return(
    session: Session,
    model_id: int | None,
    tombstone_key: bytes,
    clients: Mapping[str, str],
    subject: str | None = None,
) -> bool:
    """Return whether none of at most CHUNK records was erased from another client.

    clients: the new owner of each record. A record may return only to the client that it was
    erased from: no other client can undo an erasure. subject: of a key that is bound to one,
    which can undo none of another subject.
    """
    stones = _tombstones(session, model_id, tombstone_key, list(clients))
    returning: dict[str, set[int | None]] = {}  # None: the owner is unknown after a restore
    for stone, record in stones:
        returning.setdefault(clients[record], set()).add(stone.subject_id)
    for client, subjects in returning.items():
        own = select(Subject.id).where(*_named(model_id, client, subject))
        if subjects - set(session.exec(own)):
            return False
    return True


def write_tombstones(
    session: Session, model_id: int, tombstone_key: bytes, requests: Mapping[str, str]
) -> None:
    """Write the tombstones of records that still exist. requests: by record, who erases it."""
    for chunk in chunks(list(requests)):
        query = select(Record.record, Record.subject_id).where(
            Record.model_id == model_id, col(Record.record).in_(chunk)
        )
        stones = [
            {
                "model_id": model_id,
                "tag": record_tag(tombstone_key, record),
                "subject_id": subject,
                "request_id": requests[record],
            }
            for record, subject in session.exec(query)
        ]
        session.connection().execute(insert(Tombstone), stones)


def _tombstones(
    session: Session, model_id: int | None, tombstone_key: bytes, records: Sequence[str]
) -> list[tuple[Tombstone, str]]:
    tags = {record_tag(tombstone_key, record): record for record in records}
    query = select(Tombstone).where(
        Tombstone.model_id == model_id, col(Tombstone.tag).in_(list(tags))
    )
    return [(stone, tags[bytes(stone.tag)]) for stone in session.exec(query)]


def is_add_back(session: Session, contribution: Contribution) -> bool:
    """Return whether, by the log, a contribution was signed to bring erased records back."""
    entry = session.get_one(LogEntry, contribution.log_index)
    return ADD_BACK in parse_leaf(entry.leaf).digests


class Binding(Protocol):
    """Limits a key to a client's or subject's records; to none if both are None."""

    @property
    def client(self) -> str | None:
        """The client that it is bound to."""

    @property
    def subject(self) -> str | None:
        """The subject that it is bound to."""


def narrow(scope: Scope, key: Binding) -> Scope:
    """Return a scope narrowed to the key's own records.

    The narrowed scope is recorded, committed to in the log and executed, so that later
    contributions of others, or changes of the key, do not alter it. Named records are kept:
    each is checked when it is claimed. Raises KeyNotEntitledError if the key is bound to
    another client or subject.
    """
    if scope.records is not None:
        return scope
    client, subject = scope.client or key.client, scope.subject or key.subject
    if key.client not in (None, client) or key.subject not in (None, subject):
        raise _not_entitled()
    level: Level = "client" if subject is None else "subject"
    return Scope(level=level, client=client, subject=subject)


def check_size(named: Sequence[str], limit: int) -> None:
    """Raise ScopeTooLargeError if a body's scope lists more than `limit` records."""
    if len(named) > limit:
        raise ScopeTooLargeError(
            f"a request may name {limit} records: split it, or name the client"
        )


def check_scope(
    session: Session, root_secret: RootSecret, model: Model, key: RequesterKey, scope: Scope
) -> int:
    """Return how many records of `scope` a key may erase, if all can be claimed.

    It only reads, and explains refusals; `claim` decides. The holder of a bound key learns
    about its own data only: everything else gets the same answer.

    Args:
        session: A snapshot.
        root_secret: Opens the model's tombstone key.
        model: The model that holds the records.
        key: The signer; a key bound to a client or subject reaches only its own records.
        scope: As `narrow` returned it.

    Raises:
        AlreadyErasedError: A named record, or all of a client's or subject's, are erased or
            claimed by an earlier request.
        ContributionPendingError: They may be among rows that are still being learned.
        UnknownRecordError: A record, client or subject is not in the training set.
        KeyNotEntitledError: A named record is not the key's, erased, or does not exist.
    """
    named = scope.records or []
    found, held = 0, 0
    claimant: str | None = None
    for conditions in _parts(model.id, scope, key):
        query = select(
            func.count(), func.count(col(Record.claimed_by)), func.max(Record.claimed_by)
        ).where(*conditions)
        rows, claimed, by = session.exec(query).one()
        found, held, claimant = found + rows, held + claimed, claimant or by
    if found < max(len(named), 1):
        _explain_missing(session, root_secret, model, key, scope)
    if claimant is not None and (named or held == found):
        _refuse_claimed(session, key, claimant)
    return found - held


def claim(session: Session, model_id: int, key: Binding, scope: Scope, request_id: str) -> int:
    """Claim the unclaimed records of a scope; return how many.

    Runs in the writer's transaction, with few statements because `check_scope` went before.
    Raises ScopeChangedError if a named record, or every record of the client or subject, can no
    longer be claimed: check again.
    """
    claimed = 0
    for conditions in _parts(model_id, scope, key):
        statement = update(Record).where(*conditions, col(Record.claimed_by).is_(None))
        done = session.connection().execute(statement.values(claimed_by=request_id))
        claimed += done.rowcount
    if claimed < len(scope.records or [1]):
        raise changed()
    return claimed


def covers(
    session: Session, model_id: int | None, scope: Scope, records: Sequence[str]
) -> bool:
    """Return whether a scope covers all of these records, each given once."""
    if scope.records is not None:
        return set(records) <= set(scope.records)
    query = select(Record.record).where(*_owned(model_id, scope))
    return len(list(rows_in(session, query, col(Record.record), records))) == len(records)


def holds_any(session: Session, model_id: int | None, records: Sequence[str]) -> bool:
    """Return whether any of these records is in a model's training set."""
    query = select(Record.id).where(Record.model_id == model_id)
    return next(rows_in(session, query, col(Record.record), records), None) is not None


def changed() -> ScopeChangedError:
    """Return the error for a scope that cannot all be claimed; `check_scope` explains it."""
    return ScopeChangedError("what the scope names changed just now: send the request again")


def _parts(
    model_id: int | None, scope: Scope, key: Binding
) -> Iterator[list[ColumnElement[bool]]]:
    """Yield conditions that together select the key's records in a scope, in chunks."""
    if scope.records is None:
        yield _owned(model_id, scope)
    for chunk in chunks(scope.records or []):
        yield [*_own(model_id, key), col(Record.record).in_(chunk)]


def _own(model_id: int | None, key: Binding) -> list[ColumnElement[bool]]:
    """Return the conditions of the records that a key reaches."""
    conditions = [col(Record.model_id) == model_id]
    if is_bound(key):
        named = select(Subject.id).where(*_named(model_id, key.client, key.subject))
        conditions.append(col(Record.subject_id).in_(named))
    return conditions


def is_bound(key: Binding) -> bool:
    """Return whether a key reaches only one client's or subject's records."""
    return key.client is not None or key.subject is not None


def _missing(
    session: Session, model: Model, key: RequesterKey, named: Sequence[str]
) -> list[str]:
    query = select(Record.record).where(*_own(model.id, key))
    found = set(rows_in(session, query, col(Record.record), named))
    return [record for record in named if record not in found]


class Claimed(NamedTuple):
    """A record that a request erases. salt: of its commitment; subject_id: its owner."""

    record: str
    salt: bytes
    subject_id: int


_CLAIMED = columns(col(Record.record), col(Record.salt), col(Record.subject_id))


def claimed_by(
    session: Session, model_id: int, requests: Sequence[str]
) -> dict[str, list[Claimed]]:
    """Return the records that each request claimed, in few queries."""
    found: dict[str, list[Claimed]] = {request: [] for request in requests}
    query = _CLAIMED.add_columns(col(Record.claimed_by)).where(col(Record.model_id) == model_id)
    for chunk in chunks(requests):
        claims = query.where(col(Record.claimed_by).in_(chunk)).order_by(col(Record.id))
        for record, salt, subject, request in session.connection().execute(claims):
            found[request].append(Claimed(record, bytes(salt), subject))
    return found


def forget_set(
    session: Session,
    model_id: int,
    scope: Scope,
    request_id: str,
    taken: Collection[str] = (),
    claims: Mapping[str, Sequence[Claimed]] | None = None,
) -> list[Claimed]:
    """Return the records that a request erases, at the time of its execution.

    A scope of named records means those that it claimed: a named record that another request
    erased and that was added back since is not included. A client or subject means all its
    current records, whoever claimed them: records contributed, or released by a withdrawn
    request, between submission and execution are erased too. scope: as accepted, narrowed to
    the key's own records. taken: records that others erase in the same update. claims: the
    result of `claimed_by` for this request and others. Other requests' claims are left alone:
    it is not known yet whether this request will be executed.
    """
    if scope.records is not None:
        named = set(scope.records)
        claimed = claims or claimed_by(session, model_id, [request_id])
        found = [record for record in claimed[request_id] if record.record in named]
    else:
        free = update(Record).where(*_owned(model_id, scope), col(Record.claimed_by).is_(None))
        session.flush()
        session.connection().execute(free.values(claimed_by=request_id))
        owned = _CLAIMED.where(*_owned(model_id, scope)).order_by(col(Record.id))
        found = [
            Claimed(record, bytes(salt), subject)
            for record, salt, subject in session.connection().execute(owned)
        ]
    return [record for record in found if record.record not in taken]


Rows = Sequence[Row[str, str]]  # ids of records, and their clients' `Tag`s
FETCH = 100  # rows in memory at once; most counts of a client end after a few


def records_of(session: Session, model_id: int, scope: Scope) -> Iterator[Rows]:
    """Yield the stored records of a scope as `narrow` returned it, claimed or not, in parts."""
    query = _TAGGED.where(col(Record.model_id) == model_id)
    if scope.records is None:
        owned = _named(model_id, scope.client, scope.subject)
        yield from _in_parts(session, query.where(*owned))
    for chunk in chunks(scope.records or []):
        yield from _in_parts(session, query.where(col(Record.record).in_(chunk)))


def others_of(
    session: Session, model_id: int, scope: Scope, named: Collection[str], client: str
) -> Iterator[Rows]:
    """Yield the stored records of a client that are not in such a scope, in parts.

    named: the records that the scope names, in a set. client: as `records_of` yields it.
    """
    if scope.level == "client":
        return
    query = _TAGGED.where(*_named(model_id, client, None))
    if scope.subject is not None:
        query = query.where(col(Subject.subject_tag) != scope.subject)
    for part in _in_parts(session, query):
        yield [row for row in part if row[0] not in named]


_TAGGED = columns(col(Record.record), col(Subject.client_tag)).join(
    Subject, col(Subject.id) == col(Record.subject_id)
)


def _in_parts(session: Session, query: Select[str, str]) -> Iterator[Rows]:
    streamed = query.execution_options(yield_per=FETCH)
    with session.connection().execute(streamed) as found:
        yield from found.partitions()


def owners(session: Session, model_id: int, scope: Scope) -> list[Subject]:
    """Return the subjects in a scope of level client or subject."""
    if scope.records is not None:
        return []
    named = _named(model_id, scope.client, scope.subject)
    return list(session.exec(select(Subject).where(*named)))


def _owned(model_id: int | None, scope: Scope) -> list[ColumnElement[bool]]:
    named = select(Subject.id).where(*_named(model_id, scope.client, scope.subject))
    return [col(Record.model_id) == model_id, col(Record.subject_id).in_(named)]


def _named(
    model_id: int | None, client: str | None, subject: str | None
) -> list[ColumnElement[bool]]:
    """Return the conditions of the subjects of a client, of a name, or of both."""
    conditions = [col(Subject.model_id) == model_id]
    if client is not None:
        conditions.append(col(Subject.client_tag) == client)
    if subject is not None:
        conditions.append(col(Subject.subject_tag) == subject)
    return conditions


def _explain_missing(
    session: Session, root_secret: RootSecret, model: Model, key: RequesterKey, scope: Scope
) -> None:
    """Raise the reason why records of a scope are missing, as far as the key may know it."""
    pending = session.exec(
        select(Contribution).where(
            Contribution.model_id == model.id, Contribution.state == "received"
        )
    ).all()
    # After "already erased" nobody tries again, but the record may be about to return.
    if not any(is_add_back(session, row) for row in pending):
        erased, request_id = _erased_by(session, root_secret, model, key, scope)
        if request_id is not None:
            _refuse_claimed(session, key, request_id)
        if erased:
            raise AlreadyErasedError(
                "this data was erased before; a restore kept no request of it"
            )
    if pending:
        raise ContributionPendingError(
            "rows contributed to this model are still being learned: try again in a minute"
        )
    unknown = "the scope names data that this model's training set does not hold: check the ids"
    if scope.records is None:
        raise UnknownRecordError(unknown)
    missing = set(_missing(session, model, key, scope.records))
    places = [place for place, one in enumerate(scope.records, 1) if one in missing]
    if is_bound(key):
        raise _not_entitled(places)
    # An unbound key can preview every record: places tell it nothing more.
    raise UnknownRecordError(unknown, places=named_places(places))


def _erased_by(
    session: Session, root_secret: RootSecret, model: Model, key: RequesterKey, scope: Scope
) -> tuple[bool, str | None]:
    """Return whether a missing record of the key's was erased, and by which request.

    A tombstone that a restore brought back may have no request.
    """
    conditions = [col(Tombstone.model_id) == model.id]
    if scope.records is None:
        owners = select(Subject.id).where(*_named(model.id, scope.client, scope.subject))
        last = session.exec(
            select(Tombstone.request_id)
            .join(ErasureRequest, col(ErasureRequest.id) == col(Tombstone.request_id))
            .where(*conditions, col(Tombstone.subject_id).in_(owners))
            .order_by(col(ErasureRequest.received_at).desc(), col(ErasureRequest.id))
            .limit(1)
        ).first()
        return last is not None, last
    if is_bound(key):
        own = select(Subject.id).where(*_named(model.id, key.client, key.subject))
        conditions.append(col(Tombstone.subject_id).in_(own))
    tombstone_key = open_tombstone_key(root_secret, model)
    missing = _missing(session, model, key, scope.records)
    tags = [record_tag(tombstone_key, record) for record in missing]
    erased = False
    for chunk in chunks(tags):
        query = select(func.count(), func.max(Tombstone.request_id)).where(
            *conditions, col(Tombstone.tag).in_(chunk)
        )
        stones, found = session.exec(query).one()
        erased = erased or stones > 0
        if found is not None:
            return True, found
    return erased, None


def _not_entitled(places: Sequence[int] = ()) -> KeyNotEntitledError:
    # One answer for records of others, erased ones and unknown ones, so it reveals nothing.
    # Nor do places: a key's holder can find out by single requests which ids are its own.
    detail = (
        "this key is bound to a client or subject, and the scope names data that is not theirs "
        "or not there: check the ids, or sign with the key of whose data it is"
    )
    if not places:
        return KeyNotEntitledError(detail)
    return KeyNotEntitledError(detail, places=named_places(places))


MOST_NAMED = 20  # places in a problem


def named_places(places: Sequence[int]) -> str:
    """Return the first of some places as text: no problem repeats an id that was sent."""
    shown = ", ".join(map(str, places[:MOST_NAMED]))
    return shown if len(places) <= MOST_NAMED else f"{shown}, …"


def _refuse_claimed(session: Session, key: RequesterKey, request_id: str | None) -> None:
    earlier = session.get_one(ErasureRequest, request_id)
    # The id is its holder's capability: another signer learns only the public reference.
    own = earlier.id if earlier.keyid == key.keyid else None  # a key never is None
    raise AlreadyErasedError(
        "an earlier request covers this data: follow that one",
        ref=earlier.ref,
        request=own,
        state=earlier.state,
    )
