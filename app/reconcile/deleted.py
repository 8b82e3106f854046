"""Which models are deleted: those that the log says are, whatever the table `models` says.

Whoever writes the database can put back rows and keys of which a copy was kept, or mark a model
as deleted that is not. Neither is believed.
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
    """Return whether the signed log has a model as deleted. Raises as `model_events`."""
    return len(model_events(ledger, ref, EVENT)) > 0


def require_present(ledger: Ledger, ref: str) -> None:
    """Return unless the signed log has a model as deleted.

    Raises:
        ModelDeletedError: It has.
        LetheError: The log cannot be read, or is not the one that was signed.
    """
    if is_deleted(ledger, ref):
        raise ModelDeletedError(GONE)


def deleted_in(session: Session, leaves: Sequence[Leaf] = ()) -> set[str]:
    """Return the models that the stored entries, with `leaves`, have as deleted.

    The entries must have been compared with what was signed.
    """
    query = select(LogEntry.leaf).where(LogEntry.kind == MODEL_EVENT, LogEntry.event == EVENT)
    found = {leaf.ref for leaf in leaves if leaf.event == EVENT}
    found |= {deleted_by(data) for data in session.exec(query)}
    return {ref for ref in found if ref is not None}


def deleted_by(data: bytes) -> str | None:
    """Return the model that an entry says was deleted, None for any other entry."""
    try:
        leaf = parse_leaf(data)
    except EntryError:  # fsck names it
        return None
    return leaf.ref if (leaf.kind, leaf.event) == (MODEL_EVENT, EVENT) else None


def check_deletion(session: Session, model: Model, report: FsckReport) -> bool:
    """Compare a model with its deletion in the log, whose entries were checked.

    Returns whether it is deleted: then there is nothing else of it to compare.
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
