"""Identities of people: kept with the records of a model, looked up, erased with them.

Every change is in the transaction of what causes it, and has an entry in the log that commits
to all identities of the model (`app.reconcile.people`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from sqlalchemy import bindparam, func, or_, update
from sqlmodel import Session, col, select

from app.ledger.journal import record_model_event
from app.ledger.sequencer import Ledger, Transaction
from app.problems import UnknownRecordError
from app.reconcile.deleted import is_deleted, require_present
from app.reconcile.people import (
    EVENT,
    PeopleChangedError,
    logged_total,
    people_key,
    require_logged,
    stored_rows,
    tag_conditions,
)
from app.service import registry
from app.service.context import Services
from app.service.scope import named_places
from app.vault.master import MasterKey
from app.vault.people import PeopleKey, StoredRow
from lethe.identity import Identity
from models import Model, Person, Record, bulk
from models.person import ERASED, HELD_OUT, LEARNED
from models.sealed import SealedName
from models.session import chunks

BLOCK = 5000  # identities in memory at once
TRIES = 3  # a worker may learn rows while they are read
_NAME = SealedName("people.record")
_COLUMNS = ("id", "model_id", "state", "record", "sha256", "sha1", "md5", "request_id")


class RecordIdentity(NamedTuple):
    """An identity of a record: digests by algorithm, of the normalised value."""

    record: str
    state: str  # LEARNED or HELD_OUT
    kind: str
    digests: Mapping[str, bytes]


def add(
    services: Services, tx: Transaction, model: Model, found: Iterable[RecordIdentity]
) -> int:
    """Keep identities of a model's records; return how many of them were new."""
    rest = iter(found)
    if not (block := list(islice(rest, BLOCK))):
        return 0
    key, session = people_key(services.master, model), tx.session
    session.flush()
    dialect = session.connection().dialect
    following = (session.exec(select(func.max(Person.id))).one() or 0) + 1
    known = session.exec(select(Person.id).where(Person.model_id == model.id).limit(1)).first()
    total = added = 0
    while block:
        sealed = _NAME.bind_all([one.record for one in block], dialect)
        held = set() if known is None else _held(session, model, block)
        rows: list[StoredRow] = []
        names: list[str] = []
        for one, record in zip(block, sealed, strict=True):
            tags = key.tags(one.kind, one.digests)
            if (one.state, record, tags) in held:
                continue
            held.add((one.state, record, tags))
            rows.append(StoredRow(following, one.state, record, tags, None))
            names.append(one.record)
            following += 1
        total, added = total + key.total(rows), added + len(rows)
        if rows:
            stored = [
                (row.id, model.id, row.state, name, *row.tags, None)
                for row, name in zip(rows, names, strict=True)
            ]
            columns = list(zip(*stored, strict=True))
            bulk.insert_blocks(session.connection(), Person, _COLUMNS, [columns])
        block = list(islice(rest, BLOCK))
    _log(services.ledger, tx, model, key, total)
    return added


def _held(
    session: Session, model: Model, block: Sequence[RecordIdentity]
) -> set[tuple[str, bytes | None, tuple[bytes | None, ...]]]:
    """Return the state, record and tags of rows that are there of these records."""
    held = set()
    for chunk in chunks(sorted({one.record for one in block})):
        for row in stored_rows(session, model.id, col(Person.record).in_(chunk)):
            held.add((row.state, row.record, row.tags))
    return held


def bury(
    services: Services,
    tx: Transaction,
    model: Model,
    requests: Mapping[str, str],
    held_out: Mapping[str, str | None] = MappingProxyType({}),
) -> None:
    """Forget which records identities were of; the tags stay and say that they were erased.

    Once in a transaction: what the log commits to is read from what was committed before.

    requests: erased records, each with the id of the request that erases it. held_out: held-out
    rows that were stored, with the request if one removes them. Those that were not stored are
    left alone: a client may send any id for them, and must not get an answer about it.
    """
    key = people_key(services.master, model)
    change = _bury(tx.session, model, key, LEARNED, requests)
    change += _bury(tx.session, model, key, HELD_OUT, held_out)
    _log(services.ledger, tx, model, key, change)


def _bury(
    session: Session,
    model: Model,
    key: PeopleKey,
    state: str,
    requests: Mapping[str, str | None] | Mapping[str, str],
) -> int:
    """Bury the identities that records have in a state; return by how much the sum changes."""
    dialect, change = session.connection().dialect, 0
    for chunk in chunks(list(requests)):
        by_seal = dict(zip(_NAME.bind_all(chunk, dialect), chunk, strict=True))
        own = (col(Person.state) == state) & col(Person.record).in_(chunk)
        rows = list(stored_rows(session, model.id, own))
        erased = [
            StoredRow(row.id, ERASED, None, row.tags, requests[by_seal[row.record]])
            for row in rows
        ]
        if not rows:
            continue
        change += key.total(erased) - key.total(rows)
        statement = update(Person).where(col(Person.id) == bindparam("row"))
        session.connection().execute(
            statement.values(state=ERASED, record=None, request_id=bindparam("by")),
            [{"row": row.id, "by": row.request_id} for row in erased],
        )
    return change


def _log(ledger: Ledger, tx: Transaction, model: Model, key: PeopleKey, change: int) -> None:
    """Commit to a model's identities after a change; nothing where there was none."""
    if change:
        total = logged_total(ledger, model, key) + change
        record_model_event(tx, model.ref, EVENT, key.logged(total))


@dataclass(frozen=True, slots=True)
class Found:
    """What a model has of a person. erased_by: ids of requests, where they are known.

    rows: those that say so, as they are stored.
    """

    model: Model
    learned: tuple[str, ...]
    held_out: tuple[str, ...]
    erased: int
    erased_by: tuple[str, ...]
    rows: frozenset[StoredRow]


def find(services: Services, model: Model, person: Identity) -> Found:
    """Return what a model has of a person, once its identities are those of the log.

    Raises:
        PeopleChangedError: They are not: whoever wrote them is not believed.
    """
    for tried in range(1, TRIES + 1):
        try:
            with services.reading() as session:
                require_logged(services.ledger, session, services.master, model)
                return looked_up(session, services.master, model, person)
        except PeopleChangedError:
            if tried == TRIES:
                raise
    raise AssertionError


def looked_up(session: Session, master: MasterKey, model: Model, person: Identity) -> Found:
    """Return what the table has of a person, believed or not (`find`)."""
    key = people_key(master, model)
    tags = key.tags(person.kind, person.digests)
    stored = stored_rows(session, model.id, or_(*tag_conditions(tags)))
    rows = frozenset(row for row in stored if _is_of(row.tags, tags))
    dialect = session.connection().dialect

    def names(state: str) -> tuple[str, ...]:
        sealed = {row.record for row in rows if row.state == state}
        return tuple(sorted(_NAME.process_result_value(one, dialect) for one in sealed))

    erased = [row for row in rows if row.state == ERASED]
    by = sorted({row.request_id for row in erased if row.request_id is not None})
    return Found(model, names(LEARNED), names(HELD_OUT), len(erased), tuple(by), rows)


def _is_of(stored: Sequence[bytes | None], wanted: Sequence[bytes | None]) -> bool:
    """Return whether tags are of one value, by the strongest algorithm that both have.

    Whoever chooses two values with one MD5 or SHA-1 gets neither person the other's records.
    """
    pairs = zip(stored, wanted, strict=True)
    both = [(one, other) for one, other in pairs if one is not None and other is not None]
    return bool(both) and both[0][0] == both[0][1]


def models_of(services: Services, session: Session, refs: Sequence[str] | None) -> list[Model]:
    """Return the models of these references; for None all, but for those that were deleted.

    Raises:
        NotFoundError: There is none of a reference.
        ModelDeletedError: The log has one of the references as deleted.
    """
    if refs is None:
        every = session.exec(select(Model).order_by(col(Model.ref))).all()
        return [model for model in every if not is_deleted(services.ledger, model.ref)]
    for ref in refs:
        require_present(services.ledger, ref)
    return [registry.find(session, ref) for ref in dict.fromkeys(refs)]


def import_identities(
    services: Services, ref: str, found: Sequence[tuple[str, Identity]]
) -> int:
    """Keep identities of records that a model has learned; return how many were new.

    Raises:
        NotFoundError: There is no such model.
        ModelDeletedError: It was deleted.
        UnknownRecordError: Some of the records are none of its training set. The problem
            counts them and has the places of the first in the list.
    """
    require_present(services.ledger, ref)
    with services.reading() as session:
        model = registry.find(session, ref)
        model_id = model.id
        require_logged(services.ledger, session, services.master, model)

    def effect(tx: Transaction) -> int:
        known: set[str] = set()
        for chunk in chunks(sorted({record for record, _ in found})):
            query = select(Record.record).where(
                Record.model_id == model_id, col(Record.record).in_(chunk)
            )
            known.update(tx.session.exec(query))
        unknown = [place for place, (record, _) in enumerate(found, 1) if record not in known]
        if unknown:
            raise UnknownRecordError(
                f"{len(unknown)} of {len(found)} records are not in the model's training set; "
                f"by their places in the list: {named_places(unknown)}",
                places=named_places(unknown),
            )
        rows = (RecordIdentity(record, LEARNED, one.kind, one.digests) for record, one in found)
        return add(services, tx, tx.session.get_one(Model, model_id), rows)

    return services.ledger.transact(effect)
