"""fsck of the erasure journal: each erased record has a tombstone and is not stored.

Opening the journal takes the master key. Findings have only models and counts.
"""

from sqlalchemy.engine import Engine
from sqlmodel import Session, col, select

from app.reconcile.deleted import deleted_in
from app.reconcile.findings import FsckReport
from app.reconcile.fsck.run import sealed_rows
from app.reconcile.journal import (
    LEARNED,
    added_back,
    of_models,
    read_beside,
    stored_erased,
    unjournaled,
    without_tombstone,
)
from app.vault.journal import Erased, ErasureJournal, JournalError
from app.vault.master import ADD_BACK, RootSecret, tags_digest
from lethe.log.entries import MODEL_EVENT
from models import LogEntry
from models.database.session import reading

CHECK = "journal"
FETCH = 500  # rows in memory at once
BACK = (
    "the log has erased records added back, and the erasure journal lacks them: restore its "
    "newest copy"
)
AGAIN = "restore its newest copy"


def fsck_journal(
    engine: Engine, root_secret: RootSecret, journal: ErasureJournal, report: FsckReport
) -> None:
    """Report differences between the journal, tombstones and the log's contributions.

    Safe beside a running service: the journal is read after the database's snapshot.
    """
    with Session(reading(engine)) as session, sealed_rows(report, "tombstones"):
        try:
            counted = read_beside(session, journal)
        except JournalError as error:
            report.add(CHECK, error.detail)
            return
        for model, stones in unjournaled(session, counted):
            report.add(
                CHECK,
                f"the erasure journal lacks {len(stones)} tombstones of model {model.ref}: "
                "restore its newest copy, or run `lethe restore --journal-only`",
            )
        for model, missing in without_tombstone(session, counted):
            report.add(
                CHECK,
                f"{len(missing)} records of model {model.ref} that the erasure journal has as "
                "erased have no tombstone: run `lethe restore --journal-only`",
            )
        for model, tags in of_models(session, counted):
            if stored := sum(1 for _ in stored_erased(session, root_secret, model, tags)):
                report.add(
                    CHECK,
                    f"{stored} records of model {model.ref} are stored that the erasure "
                    "journal has as erased: run `lethe restore --journal-only`",
                )
        _check_added_back(session, counted, report)
        for ref in sorted(deleted_in(session) - counted.deleted):
            report.add(CHECK, f"the erasure journal lacks the deletion of model {ref}: {AGAIN}")


def _check_added_back(session: Session, counted: Erased, report: FsckReport) -> None:
    """Compare the journal's lines with the logged contributions that lifted tombstones."""
    back: dict[int, set[bytes]] = {}
    for line in counted.lines:
        if line.entry is not None:
            back.setdefault(line.entry, set()).update(line.returned)
    query = (
        select(LogEntry.index, LogEntry.leaf)
        .where(LogEntry.kind == MODEL_EVENT, LogEntry.event == LEARNED)
        .order_by(col(LogEntry.index))
        .execution_options(yield_per=FETCH)
    )
    for index, data in session.exec(query):
        leaf = added_back(data)
        if leaf is not None and tags_digest(back.get(index, ())) != leaf.digests[ADD_BACK]:
            report.add(CHECK, BACK, index)
