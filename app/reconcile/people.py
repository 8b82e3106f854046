"""Compares a model's identities, in the table `people`, with the log.

Write access to the table could make a request erase somebody else's records, or make the
service sign that a person was not found. So the rows that a lookup reads must add up to their
part of the sum that the log commits to. The parts are sealed in the table `people_sums`, and
trusted if they add up to the logged sum; otherwise all rows of the model are read, about 15 µs
each.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sqlalchemy import ColumnElement, LargeBinary, delete, insert, type_coerce
from sqlalchemy import select as columns
from sqlmodel import Session, col, select

from app.ledger.sequencer import Ledger
from app.reconcile.deleted import deleted_in
from app.reconcile.findings import FsckReport
from app.reconcile.model_events import model_events
from app.vault.master import RootSecret, open_tombstone_key
from app.vault.people import PeopleKey, StoredRow, Sums
from lethe.errors import LetheError
from lethe.log.entries import Leaf, parse_leaf
from models import LogEntry, Model, PeopleSums, Person

FETCH = 1000  # rows in memory at once
EVENT = "model.people"
CHANGED = "the identities of a model are not those that the log committed to"
CHANGED_SUMS = "the table people_sums has other sums than the identities of a model have"
PENDING = (
    "a restore erased identities of a model and was interrupted before it logged them: run "
    "`lethe restore --journal-only`"
)


class PeopleChangedError(LetheError):
    """A row of the table `people` was changed, added or removed by another program."""

    slug, title, status = "people-changed", "The identities were changed", 500


def people_key(root_secret: RootSecret, model: Model) -> PeopleKey:
    """Return the keys of a model's identities."""
    return PeopleKey(open_tombstone_key(root_secret, model))


def stored_rows(
    session: Session, model_id: int | None, *conditions: ColumnElement[bool]
) -> Iterator[StoredRow]:
    """Yield a model's rows that meet the conditions, as stored."""
    table = Person.__table__.c  # type: ignore[attr-defined]
    query = columns(
        table.id,
        table.state,
        type_coerce(table.record, LargeBinary),
        table.sha256,
        table.sha1,
        table.md5,
        table.request_id,
        table.imported_by,
    ).where(table.model_id == model_id, *conditions)
    found = session.connection().execute(query.execution_options(yield_per=FETCH))
    for row_id, state, record, *tags, request_id, imported_by in found:
        yield StoredRow(
            row_id,
            state,
            None if record is None else bytes(record),
            tuple(None if tag is None else bytes(tag) for tag in tags),
            request_id,
            imported_by,
        )


def logged_total(ledger: Ledger, model: Model, key: PeopleKey) -> int:
    """Return the last logged sum over a model's identities.

    Raises LetheError: the log cannot be read, or is not the signed one.
    """
    entries = model_events(ledger, model.ref, EVENT)
    return key.opened(entries[len(entries) - 1][1].digests if len(entries) else {})


def present_total(session: Session, model: Model, logged: int) -> tuple[int, Sums | None]:
    """Return the sum that a model's rows must have, and its parts if they are known.

    It is the logged sum, or that of an interrupted restore which has not logged it yet.
    """
    sums = _stored_sums(session, model)
    if sums is not None and logged in (sums.follows, sums.total):
        return sums.total, sums
    return logged, None if logged else Sums()


def store_sums(session: Session, model: Model, sums: Sums | None) -> None:
    """Replace the stored parts of a model's sum; None if they are unknown."""
    assert model.id is not None
    session.connection().execute(delete(PeopleSums).where(col(PeopleSums.model_id) == model.id))
    if sums is not None:
        values = {"model_id": model.id, "sums": sums.encode()}
        session.connection().execute(insert(PeopleSums), [values])


def read_all(session: Session, model: Model, key: PeopleKey, total: int) -> Sums:
    """Return the parts of a sum, computed from all rows of a model.

    Raises PeopleChangedError: the rows do not add up to `total`.
    """
    sums = _sums_of_rows(session, model, key)
    if sums is None or sums.total != total:
        raise PeopleChangedError(
            f"{CHANGED}: lookups are blocked; run `lethe log fsck`, find out who writes "
            "to the database, and restore its table people from a backup"
        )
    return sums


def read_part(
    session: Session, model: Model, key: PeopleKey, sums: Sums, tags: Sequence[bytes | None]
) -> list[StoredRow] | None:
    """Return the rows that share a tag's first byte, None if they do not match `sums`."""
    table = Person.__table__.c  # type: ignore[attr-defined]
    found: dict[int, StoredRow] = {}
    for place, (column, tag) in enumerate(
        zip((table.sha256, table.sha1, table.md5), tags, strict=True)
    ):
        if tag is None:
            continue
        limits = [column >= tag[:1]]
        if tag[0] < 255:
            limits.append(column < bytes([tag[0] + 1]))
        try:
            rows = list(stored_rows(session, model.id, *limits))
            if key.total(rows) != sums.part(place, tag[0]):
                return None
        except (AttributeError, TypeError, ValueError, struct.error):  # as `_sums_of_rows`
            return None
        found |= {row.id: row for row in rows}
    return list(found.values())


def check_people(session: Session, root_secret: RootSecret, report: FsckReport) -> None:
    """Report models whose identities differ from the log."""
    gone = deleted_in(session)
    for model in session.exec(select(Model).order_by(col(Model.id))).all():
        if model.ref in gone:
            continue
        key = people_key(root_secret, model)
        index, digests = last_entry(session, model)
        logged = key.opened(digests)
        total, _ = present_total(session, model, logged)
        stored, by_rows = _stored_sums(session, model), _sums_of_rows(session, model, key)
        if by_rows is None or by_rows.total != total:
            report.add("people", CHANGED, index)
        elif total != logged:
            report.add("people", PENDING, index)
        elif _has_sums(session, model) and (
            stored is None or stored.encode()[32:] != by_rows.encode()[32:]
        ):
            report.add("people", CHANGED_SUMS, index)


def rows_if_logged(session: Session, root_secret: RootSecret, model: Model) -> Sums | None:
    """Return the sums of a model's rows if they match its last entry, else None.

    The log must have been checked.
    """
    key = people_key(root_secret, model)
    total, _ = present_total(session, model, key.opened(last_entry(session, model)[1]))
    sums = _sums_of_rows(session, model, key)
    return sums if sums is not None and sums.total == total else None


def hand_over(
    session: Session, root_secret: RootSecret, model: Model, leaves: Sequence[Leaf] = ()
) -> None:
    """Store the sums of a model whose rows a restore changed, with the sum they replace.

    Until the change is logged, these sums are trusted instead of the logged ones: only this
    service can seal them, and they name the logged sum. leaves: of the log, not stored yet.
    """
    key = people_key(root_secret, model)
    sums = _sums_of_rows(session, model, key)
    if sums is None:
        return
    own = [leaf for leaf in leaves if (leaf.ref, leaf.event) == (model.ref, EVENT)]
    sums.follows = key.opened(own[-1].digests if own else last_entry(session, model)[1])
    store_sums(session, model, sums)


def last_entry(session: Session, model: Model) -> tuple[int | None, Mapping[str, str]]:
    """Return index and digests of a model's last entry on identities, found by columns."""
    last = session.exec(
        select(LogEntry.index, LogEntry.leaf)
        .where(LogEntry.ref == model.ref, LogEntry.event == EVENT)
        .order_by(col(LogEntry.index).desc())
        .limit(1)
    ).first()
    return (None, {}) if last is None else (last[0], parse_leaf(last[1]).digests)


def tag_conditions(tags: Iterable[bytes | None]) -> list[ColumnElement[bool]]:
    """Return, for each tag, the condition for rows with this tag."""
    table = Person.__table__.c  # type: ignore[attr-defined]
    return [
        column == tag
        for column, tag in zip((table.sha256, table.sha1, table.md5), tags, strict=True)
        if tag is not None
    ]


def _sums_of_rows(session: Session, model: Model, key: PeopleKey) -> Sums | None:
    """Return the sums over the stored rows, None if a row has invalid types."""
    try:
        return key.sums(stored_rows(session, model.id))
    # SQLite stores any type, and an empty tag has no first byte.
    except (AttributeError, IndexError, TypeError, ValueError, struct.error):
        return None


def _has_sums(session: Session, model: Model) -> bool:
    query = select(PeopleSums.model_id).where(PeopleSums.model_id == model.id)
    return session.exec(query).first() is not None


def _stored_sums(session: Session, model: Model) -> Sums | None:
    """Return the stored sums of a model, None if this service sealed none."""
    try:
        sealed = session.exec(
            select(PeopleSums.sums).where(PeopleSums.model_id == model.id)
        ).first()
    except LetheError:
        return None
    return None if sealed is None else Sums.decode(sealed)
