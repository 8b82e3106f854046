"""fsck of legal holds: each row opens its log entries, and each entry has a row."""

from sqlmodel import Session, col, select

from app.reconcile.findings import FsckReport
from app.reconcile.holds import compare
from lethe.log.entries import HOLD_EVENT, EntryError, Leaf, parse_leaf
from models import LegalHold, LogEntry

CHECK = "hold"


def check_holds(session: Session, report: FsckReport) -> None:
    """Compare the table with the stored entries, which `check_tree` has verified."""
    query = select(LogEntry.index, LogEntry.leaf).where(LogEntry.kind == HOLD_EVENT)
    logged: dict[str, list[tuple[int, Leaf]]] = {}
    for index, data in session.exec(query.order_by(col(LogEntry.index))):
        try:
            leaf = parse_leaf(data)
        except EntryError:  # reported by `check_tree`
            continue
        logged.setdefault(str(leaf.ref), []).append((index, leaf))
    rows = {row.id: row for row in session.exec(select(LegalHold))}
    for index, problem in compare(rows, logged)[1]:
        report.add(CHECK, problem, index)
