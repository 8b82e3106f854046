"""Compares a model's held-out rows with the log.

The log commits to the file of a model's held-out rows by its digest, under a salt in the file.
An erasure writes a new file without the row, destroys the old file's key, and logs the new
digest. So write access to the database is not enough to change the rows behind a published
accuracy, or to keep the old file, without detection.
"""

from collections.abc import Iterator

from sqlmodel import Session, col, select

from app.ledger.sequencer import Ledger
from app.reconcile.deleted import deleted_in
from app.reconcile.findings import FsckReport
from app.reconcile.model_events import model_events
from lethe.log.entries import MODEL_EVENT, parse_leaf
from models import Artifact, LogEntry, Model

EVENT = "model.held-out"
KIND = "held-out"  # the artifact's kind


def logged_digest(ledger: Ledger, ref: str) -> str | None:
    """Return the logged digest of a model's held-out rows, None if it has none.

    Raises LetheError: the log cannot be read, or is not the signed one.
    """
    entries = model_events(ledger, ref, EVENT)
    return entries[len(entries) - 1][1].digests.get("rows") if len(entries) else None


def check_held_out(session: Session, report: FsckReport) -> None:
    """Report held-out rows that are only stored, and those that are only in the log."""
    logged = dict(_logged(session))
    query = select(Artifact.digest).where(
        Artifact.kind == KIND, col(Artifact.wrapped_key).is_not(None)
    )
    stored = set(session.exec(query))
    for _ in sorted(stored - logged.keys()):
        report.add("held-out", "held-out rows are stored that were removed by the log")
    for digest in sorted(logged.keys() - stored):
        report.add("held-out", "the held-out rows of a model are not stored", logged[digest])


def _logged(session: Session) -> Iterator[tuple[str, int]]:
    """Yield the digest and index of each model's last entry on held-out rows."""
    for ref in set(session.exec(select(Model.ref))) - deleted_in(session):
        last = session.exec(
            select(LogEntry.index, LogEntry.leaf)
            .where(LogEntry.kind == MODEL_EVENT, LogEntry.ref == ref, LogEntry.event == EVENT)
            .order_by(col(LogEntry.index).desc())
            .limit(1)
        ).first()
        if last is not None and (digest := parse_leaf(last[1]).digests.get("rows")):
            yield digest, last[0]
