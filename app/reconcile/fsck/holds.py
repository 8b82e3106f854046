"""fsck of legal holds: each row opens its log entries, and each entry has a row."""

from sqlmodel import Session, col, select

from app.reconcile.findings import FsckReport, valid_leaves
from app.reconcile.holds import ENDED, UNTARGETED, Held, compare, has_target, kept_by
from app.reconcile.retention import ended_refs
from lethe.log.entries import HOLD_EVENT, Leaf
from models import LegalHold, LogEntry

CHECK = "hold"


def check_holds(session: Session, report: FsckReport) -> Held:
    """Compare the table with the stored entries, which `check_tree` has verified.

    Returns what the holds in force protect.
    """
    query = select(LogEntry.index, LogEntry.leaf).where(LogEntry.kind == HOLD_EVENT)
    logged: dict[str, list[tuple[int, Leaf]]] = {}
    for index, leaf in valid_leaves(session.exec(query.order_by(col(LogEntry.index)))):
        logged.setdefault(str(leaf.ref), []).append((index, leaf))
    rows = {row.id: row for row in session.exec(select(LegalHold))}
    standing, problems = compare(rows, logged, ended_refs(session, ENDED))
    for index, problem in problems:
        report.add(CHECK, problem, index)
    for hold in standing:
        if hold.id in logged and not has_target(session, hold):
            report.add(CHECK, UNTARGETED, hold.log_index)
    return kept_by(session, standing)
