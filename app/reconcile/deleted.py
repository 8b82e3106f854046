"""The deleted models by the log, whatever the table `models` says.

Anyone with write access to the database can restore rows and keys from a copy, or mark a model
as deleted. Neither counts.
"""

from collections.abc import Sequence

from sqlmodel import Session, col, select

from app.ledger.sequencer import Ledger
from app.problems import ModelDeletedError
from app.reconcile.findings import FsckReport
from app.reconcile.model_events import model_events
from app.vault.wipe import DELETED, is_wiped
from lethe.log.entries import MODEL_EVENT, EntryError, Leaf, parse_leaf
from models import LogEntry, Model

EVENT = "model.deleted"
REGISTERED, VERSION = "model.registered", "model.version"
GONE = (
    "the model was deleted: its log entries and certificates remain, and its name is not reused"
)
LEFT = (
    "the log has a model as deleted, and the database still holds some of it: run `lethe "
    "restore --journal-only`"
)
UNLOGGED = (
    "the database has a model as deleted, and the log has not: restore the database from its "
    "newest backup"
)
REVIVED = "the log has a model that was registered, or learned, after it was deleted"


def is_deleted(ledger: Ledger, ref: str) -> bool:
    """Return whether the signed log has a model's deletion. Raises as `model_events`."""
    return len(model_events(ledger, ref, EVENT)) > 0


def require_present(ledger: Ledger, ref: str) -> None:
    """Check that the signed log has no deletion of a model.

    Raises ModelDeletedError: it has one; LetheError: the log cannot be read, or is not the
    signed one.
    """
    if is_deleted(ledger, ref):
        raise ModelDeletedError(GONE)


def deleted_in(session: Session, leaves: Sequence[Leaf] = ()) -> set[str]:
    """Return the refs of the models deleted by the stored entries and `leaves`.

    The entries must have been compared with the signed log.
    """
    query = select(LogEntry.leaf).where(LogEntry.kind == MODEL_EVENT, LogEntry.event == EVENT)
    found = {leaf.ref for leaf in leaves if leaf.event == EVENT}
    found |= {deleted_by(data) for data in session.exec(query)}
    return {ref for ref in found if ref is not None}


def deleted_by(data: bytes) -> str | None:
    """Return the ref of the model whose deletion an entry records, None for other entries."""
    try:
        leaf = parse_leaf(data)
    except EntryError:  # reported by fsck
        return None
    return leaf.ref if (leaf.kind, leaf.event) == (MODEL_EVENT, EVENT) else None


def check_deletion(session: Session, model: Model, report: FsckReport) -> bool:
    """Compare a model with its deletion in the log, whose entries were checked.

    Returns whether it is deleted; then nothing else about it can be compared.
    """
    own = select(LogEntry.index, LogEntry.event).where(
        LogEntry.kind == MODEL_EVENT,
        LogEntry.ref == model.ref,
        col(LogEntry.event).in_((EVENT, REGISTERED, VERSION)),
    )
    events = session.exec(own.order_by(col(LogEntry.index))).all()
    places = [place for place, (_, event) in enumerate(events) if event == EVENT]
    if not places:
        if model.state == DELETED:
            report.add("model", UNLOGGED)
        return False
    index = events[places[0]][0]
    if len(events) > places[0] + 1:
        report.add("model", REVIVED, events[places[0] + 1][0])
    if not is_wiped(session, model):
        report.add("model", LEFT, index)
    return True
