"""From a scope to the records it means, and who may erase them."""

import hashlib
import hmac
from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

from sqlalchemy import ColumnElement, func, update
from sqlmodel import Session, col, select

from app.ledger.entries import parse_leaf
from app.schemas.requests import Scope
from app.service.problems import (
    AlreadyErasedError,
    ContributionPendingError,
    ScopeTooLargeError,
    UnknownRecordError,
)
from app.signing.errors import KeyNotEntitledError
from app.vault.master import MasterKey
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

ADD_BACK = "addBack"  # digest in the log's entry of a contribution that brings records back
CHUNK = 500  # SQLite's oldest limit on bound variables is 999


def record_tag(tombstone_key: bytes, record: str) -> bytes:
    """Return what is kept of an erased record's id: HMAC-SHA256 under the model's key."""
    return hmac.new(tombstone_key, record.encode(), hashlib.sha256).digest()


def open_tombstone_key(master: MasterKey, model: Model) -> bytes:
    """Unseal the key that tags a model's erased records."""
    return master.open(model.tombstone_key, aad=f"tombstone|{model.ref}".encode())


def has_tombstone(
    session: Session, model_id: int | None, tombstone_key: bytes, records: Sequence[str]
) -> bool:
    """Return whether one of at most CHUNK records was erased from a model."""
    tags = [record_tag(tombstone_key, record) for record in records]
    query = select(Tombstone.tag).where(
        Tombstone.model_id == model_id, col(Tombstone.tag).in_(tags)
    )
    return session.exec(query).first() is not None


def tags_digest(tags: Collection[bytes]) -> str:
    """Return the hex SHA-256 of the tags in ascending order, one after the other."""
    return hashlib.sha256(b"".join(sorted(tags))).hexdigest()


def is_add_back(session: Session, contribution: Contribution) -> bool:
    """Return whether a contribution was signed to bring erased records back, as logged."""
    entry = session.get_one(LogEntry, contribution.log_index)
    return ADD_BACK in parse_leaf(entry.leaf).digests


def check_scope(
    session: Session,
    master: MasterKey,
    model: Model,
    key: RequesterKey,
    scope: Scope,
    limit: int,
) -> None:
    """Return if a key may erase what `scope` means, and all of it can be claimed.

    Args:
        session: A writer transaction; `claim` follows in it.
        master: Opens the model's tombstone key.
        model: The model whose training set is meant.
        key: The signer; a key bound to a client or subject reaches only its own records.
        scope: As received.
        limit: Most records that a scope may name one by one.

    Raises:
        ScopeTooLargeError: More records are named than `limit`.
        AlreadyErasedError: A named record, or all of a client's or subject's, are erased or
            claimed by an earlier request.
        ContributionPendingError: They may be among rows that are still being learned.
        UnknownRecordError: A record, client or subject is not in the training set.
        KeyNotEntitledError: The key is bound to another client or subject.
    """
    named = scope.records or []
    if len(named) > limit:
        raise ScopeTooLargeError(
            f"a request may name {limit} records: split it, or name the client"
        )
    found, held, subjects = 0, 0, set[int]()
    claimant: str | None = None
    for conditions in _parts(model.id, scope):
        query = select(
            Record.subject_id,
            func.count(),
            func.count(col(Record.claimed_by)),
            func.max(Record.claimed_by),
        ).where(*conditions)
        for subject, rows, claimed, by in session.exec(query.group_by(col(Record.subject_id))):
            subjects.add(subject)
            found, held, claimant = found + rows, held + claimed, claimant or by
    if found < max(len(named), 1):
        missing = _missing(session, model, named)
        _explain_missing(session, master, model, key, missing)
    _check_entitled(session, key, subjects)
    if claimant is not None and (named or held == found):
        _refuse_claimed(session, key, claimant)


def claim(session: Session, model: Model, scope: Scope, request_id: str) -> int:
    """Claim what a scope means and nobody holds; return how many records. After the check."""
    claimed = 0
    for conditions in _parts(model.id, scope):
        statement = update(Record).where(*conditions, col(Record.claimed_by).is_(None))
        done = session.connection().execute(statement.values(claimed_by=request_id))
        claimed += done.rowcount
    session.expire_all()
    return claimed


def _parts(model_id: int | None, scope: Scope) -> Iterator[list[ColumnElement[bool]]]:
    """Yield conditions that together select the records of a scope, each short enough."""
    if scope.records is None:
        yield _owned(model_id, scope)
    for chunk in chunks(scope.records or []):
        yield [col(Record.model_id) == model_id, col(Record.record).in_(chunk)]


def _missing(session: Session, model: Model, named: Sequence[str]) -> list[str]:
    found: set[str] = set()
    for chunk in chunks(named):
        query = select(Record.record).where(
            Record.model_id == model.id, col(Record.record).in_(chunk)
        )
        found.update(session.exec(query))
    return [record for record in named if record not in found]


def meant(
    session: Session,
    model_id: int,
    scope: Scope,
    request_id: str,
    taken: Collection[str] = (),
) -> list[Record]:
    """Return the records that a request erases, now that its turn has come.

    A scope of named records means those that it claimed: what was erased with another
    request and came back since came back on a later wish. A client or subject means all
    that it holds now, whoever claimed it: what was contributed, or given free by a withdrawn
    request, between submission and execution is erased with the rest. `taken` are records
    that others erase in the same update. No claim of another moves: whether this request is
    executed at all is not known yet.
    """
    if scope.records is not None:
        found = session.exec(select(Record).where(Record.claimed_by == request_id)).all()
    else:
        free = update(Record).where(*_owned(model_id, scope), col(Record.claimed_by).is_(None))
        session.connection().execute(free.values(claimed_by=request_id))
        session.expire_all()
        found = session.exec(select(Record).where(*_owned(model_id, scope))).all()
    return [record for record in found if record.record not in taken]


def owners(session: Session, model_id: int, scope: Scope) -> list[Subject]:
    """Return the subjects that a scope of level client or subject means."""
    if scope.records is not None:
        return []
    return list(session.exec(select(Subject).where(*_named(model_id, scope))))


def _owned(model_id: int | None, scope: Scope) -> list[ColumnElement[bool]]:
    named = select(Subject.id).where(*_named(model_id, scope))
    return [col(Record.model_id) == model_id, col(Record.subject_id).in_(named)]


def _named(model_id: int | None, scope: Scope) -> list[ColumnElement[bool]]:
    conditions = [col(Subject.model_id) == model_id]
    if scope.client is not None:
        conditions.append(col(Subject.client) == scope.client)
    if scope.subject is not None:
        conditions.append(col(Subject.subject) == scope.subject)
    return conditions


def _check_entitled(session: Session, key: RequesterKey, subjects: set[int]) -> None:
    if key.client is None and key.subject is None:
        return
    for chunk in chunks(sorted(subjects)):
        for owner in session.exec(select(Subject).where(col(Subject.id).in_(chunk))):
            if key.client not in (None, owner.client) or key.subject not in (
                None,
                owner.subject,
            ):
                raise KeyNotEntitledError(
                    "this key is bound to another client or subject: sign with theirs"
                )


def _explain_missing(
    session: Session, master: MasterKey, model: Model, key: RequesterKey, missing: list[str]
) -> None:
    pending = session.exec(
        select(Contribution).where(
            Contribution.model_id == model.id, Contribution.state == "received"
        )
    ).all()
    # Who is told "already erased" goes away; the record may be on its way back.
    returning = any(is_add_back(session, row) for row in pending)
    tombstone_key = open_tombstone_key(master, model)
    tags = [] if returning else [record_tag(tombstone_key, record) for record in missing]
    for chunk in chunks(tags):
        query = select(Tombstone).where(
            Tombstone.model_id == model.id, col(Tombstone.tag).in_(chunk)
        )
        if (stone := session.exec(query).first()) is not None:
            _refuse_claimed(session, key, stone.request_id)
    if pending:
        raise ContributionPendingError(
            "rows contributed to this model are still being learned: try again in a minute"
        )
    raise UnknownRecordError(
        "the scope names data that this model's training set does not hold: check the ids"
    )


def _refuse_claimed(session: Session, key: RequesterKey, request_id: str | None) -> None:
    earlier = session.get_one(ErasureRequest, request_id)
    # The id is its holder's capability: another signer learns only the public reference.
    own = earlier.id if earlier.keyid == key.keyid else None
    raise AlreadyErasedError(
        "an earlier request covers this data: follow that one",
        ref=earlier.ref,
        request=own,
        state=earlier.state,
    )


T = TypeVar("T")


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split a list for IN (…)."""
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]
