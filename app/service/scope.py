"""From a scope to the records it means, and who may erase them."""

import hashlib
import hmac
from collections.abc import Iterator, Sequence
from typing import TypeVar

from sqlalchemy import ColumnElement, update
from sqlmodel import Session, col, select

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
    Model,
    Record,
    RequesterKey,
    Subject,
    Tombstone,
)

CHUNK = 500  # SQLite's oldest limit on bound variables is 999


def record_tag(tombstone_key: bytes, record: str) -> bytes:
    """Return what is kept of an erased record's id: HMAC-SHA256 under the model's key."""
    return hmac.new(tombstone_key, record.encode(), hashlib.sha256).digest()


def open_tombstone_key(master: MasterKey, model: Model) -> bytes:
    """Unseal the key that tags a model's erased records."""
    return master.open(model.tombstone_key, aad=f"tombstone|{model.ref}".encode())


def claim_records(
    session: Session,
    master: MasterKey,
    model: Model,
    key: RequesterKey,
    scope: Scope,
    limit: int,
) -> list[Record]:
    """Return the retained records that `scope` means, none of them claimed by another.

    Args:
        session: A writer transaction; the caller marks the records as claimed in it.
        master: Opens the model's tombstone key.
        model: The model whose training set is meant.
        key: The signer; a key bound to a client or subject reaches only its own records.
        scope: As received.
        limit: Most records that a scope may name one by one.

    Raises:
        ScopeTooLargeError: More records are named than `limit`.
        AlreadyErasedError: A named record, or all of a client's or subject's, are erased or
            claimed by an earlier request.
        UnknownRecordError: A record, client or subject is not in the training set.
        KeyNotEntitledError: The key is bound to another client or subject.
    """
    if scope.records is not None:
        if len(scope.records) > limit:
            raise ScopeTooLargeError(
                f"a request may name {limit} records: split it, or name the client"
            )
        found = _by_id(session, model, scope.records)
        missing = [record for record in scope.records if record not in found]
        if missing:
            _explain_missing(session, master, model, key, missing)
        records = list(found.values())
    else:
        records = list(session.exec(select(Record).where(*_owned(model.id, scope))))
        if not records:
            _explain_missing(session, master, model, key, [])
    _check_entitled(session, key, records)
    claimed = [record for record in records if record.claimed_by is not None]
    if claimed and (scope.records is not None or len(claimed) == len(records)):
        _refuse_claimed(session, key, claimed[0].claimed_by)
    return [record for record in records if record.claimed_by is None]


def _by_id(session: Session, model: Model, ids: Sequence[str]) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for chunk in chunks(ids):
        query = select(Record).where(Record.model_id == model.id, col(Record.record).in_(chunk))
        found.update((row.record, row) for row in session.exec(query))
    return found


def claim_owner(session: Session, model_id: int, scope: Scope, request_id: str) -> None:
    """Claim all that a client or subject has in the training set now, whoever claimed it.

    Called when the request's turn has come: what was contributed, or given free by a
    withdrawn request, between submission and execution is erased with the rest. A scope of
    named records means those records and stays as it was claimed.
    """
    if scope.records is None:
        statement = update(Record).where(*_owned(model_id, scope))
        session.connection().execute(statement.values(claimed_by=request_id))
        session.expire_all()


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


def _check_entitled(session: Session, key: RequesterKey, records: list[Record]) -> None:
    if key.client is None and key.subject is None:
        return
    for chunk in chunks(sorted({record.subject_id for record in records})):
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
    tombstone_key = open_tombstone_key(master, model)
    tags = [record_tag(tombstone_key, record) for record in missing]
    for chunk in chunks(tags):
        query = select(Tombstone).where(
            Tombstone.model_id == model.id, col(Tombstone.tag).in_(chunk)
        )
        if (stone := session.exec(query).first()) is not None:
            _refuse_claimed(session, key, stone.request_id)
    pending = select(Contribution.id).where(
        Contribution.model_id == model.id, Contribution.state == "received"
    )
    if session.exec(pending).first() is not None:
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
