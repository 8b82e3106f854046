"""The held-out rows of a model as the log has them, to compare what is stored with.

The log commits to the file of a model's held-out rows by its digest, under a salt in the file.
An erasure writes the file anew without the row, destroys the key of the one before, and logs
the digest of the new one. So whoever writes the database can neither put other rows under a
published accuracy nor keep the file before unnoticed.
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
KIND = "held-out"  # of the artifact


def logged_digest(ledger: Ledger, ref: str) -> str | None:
    """Return the digest of the file of a model's held-out rows, None where there are none.

    Raises:
        LetheError: The log cannot be read, or is not the one that was signed.
    """
    entries = model_events(ledger, ref, EVENT)
    return entries[len(entries) - 1][1].digests.get("rows") if len(entries) else None


def check_held_out(session: Session, report: FsckReport) -> None:
    """Add to a report of `fsck` held-out rows that the log lacks, and those it has alone."""
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
    """Yield the digest that the last entry of each model names, and the entry's index."""
    for ref in set(session.exec(select(Model.ref))) - deleted_in(session):
        last = session.exec(
            select(LogEntry.index, LogEntry.leaf)
            .where(LogEntry.kind == MODEL_EVENT, LogEntry.ref == ref, LogEntry.event == EVENT)
            .order_by(col(LogEntry.index).desc())
            .limit(1)
        ).first()
        if last is not None and (digest := parse_leaf(last[1]).digests.get("rows")):
            yield digest, last[0]
