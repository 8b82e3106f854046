"""Replays the committed lines of the erasure journal and compares them with the tombstones.

A line is on disk before its transaction commits, so a crash may leave a line of a transaction
that never did. The log decides: it has the entry of each committed transaction.

The database's snapshot must be taken before the journal is read (`read_beside`): then the
journal has everything in the snapshot, even beside a working service.
"""

import logging
from collections.abc import Iterator, Sequence

from sqlalchemy.engine import Engine
from sqlmodel import Session, col, select

from app.ledger import storage
from app.ledger.startup import RESTORED as RESTORED  # app.backup takes it from here
from app.ledger.startup import require_recovered
from app.reconcile.deleted import deleted_by
from app.reconcile.judgement import EXECUTED
from app.reconcile.model_events import CLOSED
from app.vault.journal import Erased, ErasureJournal, JournalError, Line
from app.vault.master import ADD_BACK, RootSecret, open_tombstone_key, record_tag
from app.vault.wipe import is_wiped
from lethe.log.entries import MODEL_EVENT, EntryError, Leaf, parse_leaf
from models import LogEntry, Model, Record, Tombstone
from models.database.session import reading, rows_in

ENDS = tuple(f"request.{end}" for end in CLOSED)

log = logging.getLogger(__name__)

Stones = list[tuple[bytes, str | None]]  # a tombstone's tag and request id
LEARNED = "contribution.learned"
FETCH = 1000  # rows in memory at once


def committed(
    session: Session, erased: Erased, leaves: Sequence[Leaf] = (), *, complete: bool = True
) -> Erased:
    """Replay the lines whose transaction committed.

    A line of erasures is committed if the log, with `leaves`, has all its requests as executed:
    each is executed once, in one transaction with its line. A line of added-back records is
    committed if the log has, at the line's index, a contribution that added these tags back; a
    deletion, if the log has the model's deletion there.

    A log that is not `complete` may lack the entry. A deletion then waits for its entry, since
    nothing is served before. Any other line is then left out only if one of its requests was
    closed without being executed, or if the log has another entry at its index.
    """
    logged = {(leaf.ref, leaf.event) for leaf in leaves}
    ends = select(LogEntry.ref, LogEntry.event).where(
        col(LogEntry.event).in_([EXECUTED, *ENDS])
    )
    logged.update(rows_in(session, ends, col(LogEntry.ref), sorted(erased.requests)))
    executed = {ref for ref, event in logged if event == EXECUTED}
    never = {ref for ref, event in logged if event in ENDS} - executed
    back, gone = _added_back(session, erased), _deleted(session, erased)
    size = storage.read_size(session)

    def counts(line: Line) -> bool:
        if line.entry is not None and line.deleted:
            return gone.get(line.entry) == line.model
        if line.entry is not None:
            known = back.get(line.entry) == (line.model, line.digest)
            return known or (not complete and line.entry >= size)
        if complete:
            return executed.issuperset(line.requests)
        return never.isdisjoint(line.requests)

    return erased.having(counts)


def _added_back(session: Session, erased: Erased) -> dict[int, tuple[str | None, str]]:
    """Return model and digest of the added-back records, by the log index that a line names."""
    found: dict[int, tuple[str | None, str]] = {}
    named = {line.entry for line in erased.lines if line.entry is not None}
    query = select(LogEntry.index, LogEntry.leaf)
    for index, data in rows_in(session, query, col(LogEntry.index), sorted(named)):
        if (leaf := added_back(data)) is not None:
            found[index] = leaf.ref, leaf.digests[ADD_BACK]
    return found


def _deleted(session: Session, erased: Erased) -> dict[int, str | None]:
    """Return the models deleted by the log entries that the lines of deletions name."""
    named = {one.entry for one in erased.lines if one.deleted and one.entry is not None}
    query = select(LogEntry.index, LogEntry.leaf)
    found = rows_in(session, query, col(LogEntry.index), sorted(named))
    return {index: deleted_by(data) for index, data in found}


def added_back(data: bytes) -> Leaf | None:
    """Return the entry if it says that erased records were added back, else None."""
    try:
        leaf = parse_leaf(data)
    except EntryError:  # reported by fsck
        return None
    if (leaf.kind, leaf.event) != (MODEL_EVENT, LEARNED) or ADD_BACK not in leaf.digests:
        return None
    return leaf


def of_models(session: Session, erased: Erased) -> Iterator[tuple[Model, dict[bytes, Line]]]:
    """Yield each stored model with erased records in the journal, and their tags.

    Deleted models are skipped: they have no records.
    """
    for model in session.exec(select(Model).order_by(col(Model.id))).all():
        if model.ref not in erased.deleted and (tags := erased.records.get(model.ref)):
            yield model, tags


def read_beside(session: Session, journal: ErasureJournal) -> Erased:
    """Return the journal's committed state, read after the snapshot of `session` was taken.

    Raises JournalError: the journal is missing or damaged.
    """
    session.exec(select(Model.id).limit(1)).all()  # the first statement takes the snapshot
    return committed(session, journal.read())


def unjournaled(session: Session, counted: Erased) -> Iterator[tuple[Model, Stones]]:
    """Yield each model with its tombstones that the journal lacks."""
    for model in session.exec(select(Model).order_by(col(Model.id))).all():
        known = counted.records.get(model.ref, {})
        query = (
            select(Tombstone.tag, Tombstone.request_id)
            .where(Tombstone.model_id == model.id)
            .order_by(col(Tombstone.tag))
        )
        stones = ((bytes(tag), request_id) for tag, request_id in session.exec(query))
        if missing := [stone for stone in stones if stone[0] not in known]:
            yield model, missing


def without_tombstone(session: Session, counted: Erased) -> Iterator[tuple[Model, set[bytes]]]:
    """Yield each model with the erased tags of the journal that have no tombstone."""
    for model, tags in of_models(session, counted):
        held = select(Tombstone.tag).where(Tombstone.model_id == model.id)
        if missing := tags.keys() - {bytes(tag) for tag in session.exec(held)}:
            yield model, missing


def require_applied(engine: Engine, journal: ErasureJournal) -> None:
    """Check that the database has every erasure and every deleted model of the journal.

    One transaction deletes a record and writes its tombstone, so a database without the
    tombstone is from before the erasure. Records are not read, as a start would take too long
    with many; fsck looks for records beside their tombstones.

    Tombstones that the journal lacks are logged as a warning: the journal may be from an older
    backup than the database, or somebody with write access planted them. They are not added to
    the journal here. Lines without a matching log entry are ignored: their transaction did not
    commit. Raises JournalError: a tombstone is missing, a deleted model is stored, or the
    journal is missing or damaged.
    """
    require_recovered(journal.path.parent)
    with Session(reading(engine)) as session:
        erased = read_beside(session, journal)
        for model in session.exec(select(Model).where(col(Model.ref).in_(erased.deleted))):
            if not is_wiped(session, model):
                raise JournalError(
                    f"the database holds the model {model.ref}, which was deleted: it was "
                    "restored from a backup; run `lethe restore --journal-only`"
                )
        for model, tags in without_tombstone(session, erased):
            raise JournalError(
                f"the database lacks the erasure of {len(tags)} records of model {model.ref}: "
                "it was restored from a backup; run `lethe restore --journal-only`"
            )
        if missing := sum(len(stones) for _, stones in unjournaled(session, erased)):
            log.warning(
                "the erasure journal lacks %d tombstones of the database: a restore would "
                "bring these records back. Restore the newest copy of %s; without one, `lethe "
                "restore --journal-only` adds those that the log confirms",
                missing,
                journal.path.name,
            )


def stored_erased(
    session: Session, root_secret: RootSecret, model: Model, tags: dict[bytes, Line]
) -> Iterator[tuple[Record, Line]]:
    """Yield the stored records of a model that the journal has as erased."""
    key = open_tombstone_key(root_secret, model)
    query = select(Record).where(Record.model_id == model.id)
    for row in session.exec(query.execution_options(yield_per=FETCH)):
        if (line := tags.get(record_tag(key, row.record))) is not None:
            yield row, line
