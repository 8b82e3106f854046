"""Identities of people: kept with the records of a model, looked up, erased with them.

Every change is in the transaction of its cause, and has a log entry that commits to all
identities of the model (`app.reconcile.people`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from sqlalchemy import bindparam, func, or_
from sqlmodel import Session, col, select

from app.ledger.journal import record_model_event
from app.ledger.sequencer import Ledger
from app.ledger.transaction import Transaction
from app.problems import UnknownRecordError
from app.reconcile.deleted import is_deleted, require_present
from app.reconcile.model_events import model_refs
from app.reconcile.people import (
    EVENT,
    PeopleChangedError,
    logged_total,
    people_key,
    present_total,
    read_all,
    read_part,
    store_sums,
    stored_rows,
    tag_conditions,
)
from app.service.context import Services
from app.service.models import registry
from app.service.scope import named_places
from app.vault.master import RootSecret, open_tombstone_key, record_tag
from app.vault.people import MODULUS, PeopleKey, StoredRow, Sums
from lethe.identity import Identity
from models import Model, Person, Record
from models.database import bulk
from models.database.session import chunks, rows_in
from models.database.types import SealedName
from models.person import ERASED, HELD_OUT, LEARNED

BLOCK = 5000  # identities in memory at once
TRIES = 3  # a worker may learn rows during a read
_NAME = SealedName("people.record")
_COLUMNS = (
    *("id", "model_id", "state", "record"),
    *("sha256", "sha1", "md5", "request_id", "imported_by"),
)


class RecordIdentity(NamedTuple):
    """An identity of a record: digests by algorithm, of the normalised value."""

    record: str
    state: str  # LEARNED or HELD_OUT
    kind: str
    digests: Mapping[str, bytes]


def add(
    services: Services,
    tx: Transaction,
    model: Model,
    found: Iterable[RecordIdentity],
    imported_by: str | None = None,
    returned: Mapping[bytes, str] = MappingProxyType({}),
) -> int:
    """Keep identities of a model's records; return how many of them were new.

    imported_by: the operator who supplied the identities; None if they came with the rows.
    returned: erased records that come back, by the tags of their tombstones. They are linked
    again to their identities, whether or not these came with the rows.
    """
    rest = iter(found)
    if not (block := list(islice(rest, BLOCK))) and not returned:
        return 0
    key, session = people_key(services.root_secret, model), tx.session
    session.flush()
    dialect = session.connection().dialect
    following = (session.exec(select(func.max(Person.id))).one() or 0) + 1
    known = session.exec(select(Person.id).where(Person.model_id == model.id).limit(1)).first()
    change, added = _Change(services.ledger, session, model, key), 0
    _relink(session, model, change, returned)
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
            rows.append(StoredRow(following, one.state, record, tags, None, imported_by))
            names.append(one.record)
            following += 1
        change.put(rows)
        added += len(rows)
        if rows:
            stored = [
                (row.id, model.id, row.state, name, *row.tags, None, imported_by)
                for row, name in zip(rows, names, strict=True)
            ]
            columns = list(zip(*stored, strict=True))
            bulk.insert_blocks(session.connection(), Person, _COLUMNS, [columns])
        block = list(islice(rest, BLOCK))
    change.record(tx)
    return added


def _held(
    session: Session, model: Model, block: Sequence[RecordIdentity]
) -> set[tuple[str, bytes | None, tuple[bytes | None, ...]]]:
    """Return (state, record, tags) of the stored rows of these records."""
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
    """Unlink identities from their records; the tags stay, marked as erased.

    A row keeps the tag of its record's tombstone in place of the name, so that the record is
    found if it comes back.

    At most once in a transaction, unless after `require_sums`: the logged sum is read from
    committed data.

    requests: erased records, each with the id of the request that erases it. held_out: stored
    held-out rows, with the request if one removes them. Others are left alone: a client may
    send any id for them, and must not learn whether it exists.
    """
    key = people_key(services.root_secret, model)
    change = _Change(services.ledger, tx.session, model, key)
    tombstone_key = open_tombstone_key(services.root_secret, model)
    _bury(tx.session, model, change, tombstone_key, LEARNED, requests)
    _bury(tx.session, model, change, tombstone_key, HELD_OUT, held_out)
    change.record(tx)


def _bury(
    session: Session,
    model: Model,
    change: "_Change",
    tombstone_key: bytes,
    state: str,
    requests: Mapping[str, str | None] | Mapping[str, str],
) -> None:
    """Unlink the identities that records have in a state."""
    dialect = session.connection().dialect
    for chunk in chunks(list(requests)):
        by_seal = dict(zip(_NAME.bind_all(chunk, dialect), chunk, strict=True))
        own = (col(Person.state) == state) & col(Person.record).in_(chunk)
        rows = list(stored_rows(session, model.id, own))
        names = [by_seal[row.record] for row in rows]
        by = [requests[name] for name in names]
        # Without a request there is no tombstone, and nothing to find the record by.
        links = [
            None if request is None else record_tag(tombstone_key, name).hex()
            for name, request in zip(names, by, strict=True)
        ]
        _move(session, change, rows, ERASED, links, by)


def _relink(
    session: Session, model: Model, change: "_Change", returned: Mapping[bytes, str]
) -> None:
    """Link erased identities to their records, which come back."""
    dialect = session.connection().dialect
    names = {tag.hex(): record for tag, record in returned.items()}
    for chunk in chunks(list(names)):
        by_seal = dict(zip(_NAME.bind_all(chunk, dialect), chunk, strict=True))
        own = (col(Person.state) == ERASED) & col(Person.record).in_(chunk)
        rows = list(stored_rows(session, model.id, own))
        records = [names[by_seal[row.record]] for row in rows]
        _move(session, change, rows, LEARNED, records, [None] * len(rows))


def _move(
    session: Session,
    change: "_Change",
    rows: Sequence[StoredRow],
    state: str,
    records: Sequence[str | None],
    requests: Sequence[str | None],
) -> None:
    """Give rows another state, record and request."""
    if not rows:
        return
    sealed = _NAME.bind_all(records, session.connection().dialect)
    moved = [
        StoredRow(row.id, state, record, row.tags, request, row.imported_by)
        for row, record, request in zip(rows, sealed, requests, strict=True)
    ]
    change.take(rows)
    change.put(moved)
    table = Person.__table__  # type: ignore[attr-defined]
    statement = table.update().where(table.c.id == bindparam("row"))
    session.connection().execute(
        statement.values(state=state, record=bindparam("name"), request_id=bindparam("by")),
        [
            {"row": row.id, "name": name, "by": row.request_id}
            for row, name in zip(moved, records, strict=True)
        ],
    )


def require_sums(services: Services, tx: Transaction, model: Model) -> None:
    """Make it possible to change identities twice in one transaction.

    Raises PeopleChangedError if the partial sums are missing and the rows are not those logged.
    """
    key = people_key(services.root_secret, model)
    logged = logged_total(services.ledger, model, key)
    total, sums = present_total(tx.session, model, logged)
    if sums is None:
        store_sums(tx.session, model, read_all(tx.session, model, key, total))


class _Change:
    """A change of a model's identities: of the logged sum, and of the stored partial sums."""

    def __init__(self, ledger: Ledger, session: Session, model: Model, key: PeopleKey) -> None:
        self._session, self._model, self._key = session, model, key
        self._logged = logged_total(ledger, model, key)
        self._before, self._sums = present_total(session, model, self._logged)
        self._change = 0

    def put(self, rows: Iterable[StoredRow]) -> None:
        """Add rows."""
        self._count(rows, 1)

    def take(self, rows: Iterable[StoredRow]) -> None:
        """Remove rows."""
        self._count(rows, -1)

    def record(self, tx: Transaction) -> None:
        """Commit to the identities after the change; does nothing if there was none."""
        if not self._change:
            return
        total = (self._before + self._change) % MODULUS
        if self._sums is not None:
            # The entry signed last: a second change in the transaction starts from these sums.
            self._sums.follows = self._logged
        store_sums(self._session, self._model, self._sums)
        record_model_event(tx, self._model.ref, EVENT, self._key.logged(total))

    def _count(self, rows: Iterable[StoredRow], sign: int) -> None:
        for row in rows:
            mac = sign * self._key.mac(row)
            self._change += mac
            if self._sums is not None:
                self._sums.add(row, mac)


@dataclass(frozen=True, slots=True)
class Found:
    """A person's data in a model. erased_by: ids of the requests, where known.

    rows: the stored rows that this is read from.
    """

    model: Model
    learned: tuple[str, ...]
    held_out: tuple[str, ...]
    erased: int
    erased_by: tuple[str, ...]
    rows: frozenset[StoredRow]

    @property
    def importers(self) -> list[str]:
        """Operators who imported the identities that link records to this person."""
        present = (one for one in self.rows if one.state != ERASED)
        return sorted({one.imported_by for one in present if one.imported_by is not None})


def find(services: Services, model: Model, person: Identity) -> Found:
    """Return a person's data in a model, from rows that match the log.

    Only rows that share the first byte of a tag with the person are read, 1 of 256 parts. If
    the sums of the parts are missing, all rows are read, and the sums stored. Raises
    PeopleChangedError if the rows do not match the log.
    """
    key = people_key(services.root_secret, model)
    tags = key.tags(person.kind, person.digests)
    for tried in range(1, TRIES + 1):
        try:
            with services.reading() as session:
                logged = logged_total(services.ledger, model, key)
                total, sums = present_total(session, model, logged)
                rows = None if sums is None else read_part(session, model, key, sums, tags)
                whole = None if rows is not None else read_all(session, model, key, total)
                found = looked_up(session, services.root_secret, model, person, rows)
        except PeopleChangedError:
            if tried == TRIES:
                raise
            continue
        if whole is not None or total != logged:
            keep_sums(services.ledger, services.root_secret, model.ref, whole)
        return found
    raise AssertionError


def keep_sums(
    ledger: Ledger, root_secret: RootSecret, ref: str, sums: Sums | None = None
) -> None:
    """Store the sums of a model's rows, unless the rows changed since, and log a new total.

    sums: None for those that a restore stored (`app.reconcile.people.hand_over`).
    """

    def effect(tx: Transaction) -> None:
        model = tx.session.exec(select(Model).where(Model.ref == ref)).one()
        key = people_key(root_secret, model)
        logged = logged_total(ledger, model, key)
        total, stored = present_total(tx.session, model, logged)
        kept = stored if sums is None else sums
        if kept is None or kept.total != total:
            return
        kept.follows = total
        store_sums(tx.session, model, kept)
        if total != logged:
            record_model_event(tx, ref, EVENT, key.logged(total))

    ledger.transact(effect)


def looked_up(
    session: Session,
    root_secret: RootSecret,
    model: Model,
    person: Identity,
    among: Iterable[StoredRow] | None = None,
) -> Found:
    """Return a person's data in the table, or `among` its rows, without `find`'s checks."""
    key = people_key(root_secret, model)
    tags = key.tags(person.kind, person.digests)
    stored = stored_rows(session, model.id, or_(*tag_conditions(tags)))
    rows = frozenset(
        row for row in (stored if among is None else among) if _is_of(row.tags, tags)
    )
    dialect = session.connection().dialect

    def names(state: str) -> tuple[str, ...]:
        sealed = {row.record for row in rows if row.state == state}
        return tuple(sorted(_NAME.process_result_value(one, dialect) for one in sealed))

    erased = [row for row in rows if row.state == ERASED]
    by = sorted({row.request_id for row in erased if row.request_id is not None})
    return Found(model, names(LEARNED), names(HELD_OUT), len(erased), tuple(by), rows)


def _is_of(stored: Sequence[bytes | None], wanted: Sequence[bytes | None]) -> bool:
    """Return whether tags are of one value, by the strongest algorithm in both.

    So two values with a colliding MD5 or SHA-1 are not taken for one person.
    """
    pairs = zip(stored, wanted, strict=True)
    both = [(one, other) for one, other in pairs if one is not None and other is not None]
    return bool(both) and both[0][0] == both[0][1]


def models_of(services: Services, session: Session, refs: Sequence[str] | None) -> list[Model]:
    """Return the models of these references; for None, all that were not deleted.

    Raises:
        NotFoundError: A reference has no model.
        ModelDeletedError: By the log, one of the models was deleted.
        PeopleChangedError: For None: the log has a model that the database lacks.
    """
    if refs is None:
        every = session.exec(select(Model).order_by(col(Model.ref))).all()
        lacking = set(model_refs(services.ledger)) - {model.ref for model in every}
        if any(not is_deleted(services.ledger, ref) for ref in lacking):
            raise PeopleChangedError(
                "the log has a model that the database lacks: no person is looked up in all "
                "models; run `lethe log fsck`, and restore the table models from a backup"
            )
        return [model for model in every if not is_deleted(services.ledger, model.ref)]
    for ref in refs:
        require_present(services.ledger, ref)
    return [registry.find(session, ref) for ref in dict.fromkeys(refs)]


def import_identities(
    services: Services, ref: str, found: Sequence[tuple[str, Identity]], operator: str
) -> int:
    """Keep identities of records that a model has learned; return how many were new.

    operator: the name of the token, a submitter of the requests that use these identities.

    Raises:
        NotFoundError: There is no such model.
        ModelDeletedError: It was deleted.
        UnknownRecordError: Some of the records are not in its training set. The problem
            counts them and has the places of the first in the list.
    """
    require_present(services.ledger, ref)
    with services.reading() as session:
        model = registry.find(session, ref)
        model_id = model.id
        key = people_key(services.root_secret, model)
        total, sums = present_total(session, model, logged_total(services.ledger, model, key))
        if sums is None:
            read_all(session, model, key, total)

    def effect(tx: Transaction) -> int:
        query = select(Record.record).where(Record.model_id == model_id)
        named = sorted({record for record, _ in found})
        known = set(rows_in(tx.session, query, col(Record.record), named))
        unknown = [place for place, (record, _) in enumerate(found, 1) if record not in known]
        if unknown:
            raise UnknownRecordError(
                f"{len(unknown)} of {len(found)} records are not in the model's training set; "
                f"by their places in the list: {named_places(unknown)}",
                places=named_places(unknown),
            )
        rows = (RecordIdentity(record, LEARNED, one.kind, one.digests) for record, one in found)
        return add(services, tx, tx.session.get_one(Model, model_id), rows, operator)

    return services.ledger.transact(effect)
