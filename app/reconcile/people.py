"""The identities of a model as the log has them, to compare the table `people` with.

Whoever can write to the table could have a request erase somebody else's records, or have the
service sign that a person was not found. Neither is done before the rows add up to the number
that the log committed to. That reads all rows of the model, about 15 µs each.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping

from sqlalchemy import ColumnElement, LargeBinary, type_coerce
from sqlalchemy import select as columns
from sqlmodel import Session, col, select

from app.ledger.sequencer import Ledger
from app.reconcile.deleted import deleted_in
from app.reconcile.findings import FsckReport
from app.reconcile.model_events import model_events
from app.vault.master import MasterKey
from app.vault.model_key import open_tombstone_key
from app.vault.people import PeopleKey, StoredRow
from lethe.errors import LetheError
from lethe.log.entries import parse_leaf
from models import LogEntry, Model, Person

FETCH = 1000  # rows in memory at once
EVENT = "model.people"
CHANGED = "the identities of a model are not those that the log committed to"


class PeopleChangedError(LetheError):
    """A row of the table `people` was changed, added or removed by another program."""

    slug, title, status = "people-changed", "The identities were changed", 500


def people_key(master: MasterKey, model: Model) -> PeopleKey:
    """Return the keys of a model's identities."""
    return PeopleKey(open_tombstone_key(master, model))


def stored_rows(
    session: Session, model_id: int | None, *conditions: ColumnElement[bool]
) -> Iterator[StoredRow]:
    """Yield a model's rows as they are stored, those that meet the conditions."""
    table = Person.__table__.c  # type: ignore[attr-defined]
    query = columns(
        table.id,
        table.state,
        type_coerce(table.record, LargeBinary),
        table.sha256,
        table.sha1,
        table.md5,
        table.request_id,
    ).where(table.model_id == model_id, *conditions)
    found = session.connection().execute(query.execution_options(yield_per=FETCH))
    for row_id, state, record, *tags, request_id in found:
        yield StoredRow(
            row_id,
            state,
            None if record is None else bytes(record),
            tuple(None if tag is None else bytes(tag) for tag in tags),
            request_id,
        )


def logged_total(ledger: Ledger, model: Model, key: PeopleKey) -> int:
    """Return the sum over a model's identities that the log committed to last.

    Raises:
        LetheError: The log cannot be read, or is not the one that was signed.
    """
    entries = model_events(ledger, model.ref, EVENT)
    return key.opened(entries[len(entries) - 1][1].digests if len(entries) else {})


def require_logged(
    ledger: Ledger, session: Session, master: MasterKey, model: Model
) -> PeopleKey:
    """Return the keys of a model's identities, once all rows are those that were logged.

    Raises:
        PeopleChangedError: They are not.
        LetheError: As `logged_total`.
    """
    key = people_key(master, model)
    if _stored_total(session, model, key) != logged_total(ledger, model, key):
        raise PeopleChangedError(
            f"{CHANGED}: lookups are blocked; run `lethe log fsck`, find out who writes "
            "to the database, and restore its table people from a backup"
        )
    return key


def check_people(session: Session, master: MasterKey, report: FsckReport) -> None:
    """Add to a report of `fsck` the models whose identities are not those of the log."""
    gone = deleted_in(session)
    for model in session.exec(select(Model).order_by(col(Model.id))).all():
        if model.ref not in gone and not was_logged(session, master, model):
            report.add("people", CHANGED, _last(session, model)[0])


def was_logged(session: Session, master: MasterKey, model: Model) -> bool:
    """Return whether a model's rows are those of its last entry, whose log was checked."""
    key = people_key(master, model)
    return _stored_total(session, model, key) == key.opened(_last(session, model)[1])


def _stored_total(session: Session, model: Model, key: PeopleKey) -> int | None:
    """Return the sum over the stored rows, None where one is of other types."""
    try:
        return key.total(stored_rows(session, model.id))
    except (AttributeError, TypeError, ValueError, struct.error):  # SQLite stores any type
        return None


def _last(session: Session, model: Model) -> tuple[int | None, Mapping[str, str]]:
    """Return index and digests of the last entry about a model's identities, by its columns."""
    last = session.exec(
        select(LogEntry.index, LogEntry.leaf)
        .where(LogEntry.ref == model.ref, LogEntry.event == EVENT)
        .order_by(col(LogEntry.index).desc())
        .limit(1)
    ).first()
    return (None, {}) if last is None else (last[0], parse_leaf(last[1]).digests)


def tag_conditions(tags: Iterable[bytes | None]) -> list[ColumnElement[bool]]:
    """Return, for each tag, the condition of the rows that have it."""
    table = Person.__table__.c  # type: ignore[attr-defined]
    return [
        column == tag
        for column, tag in zip((table.sha256, table.sha1, table.md5), tags, strict=True)
        if tag is not None
    ]
