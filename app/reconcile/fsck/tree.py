"""fsck of the log itself: entries, nodes, checkpoints, the guard, and what witnesses hold."""

from collections.abc import Iterator

from sqlalchemy import func, or_
from sqlalchemy import select as columns
from sqlmodel import Session, col, select

from app.ledger.sequencer import Ledger
from app.ledger.storage import LogDamagedError, latest_checkpoint, read_size
from app.reconcile.findings import FsckReport
from app.reconcile.fsck.state import Verified
from app.witnesses.rows import Rows
from app.witnesses.standing import CONTRADICTED, contradictions
from lethe.errors import LetheError
from lethe.log.checkpoint import Checkpoint
from lethe.log.entries import EntryError, parse_leaf
from lethe.log.note import split_note
from lethe.log.tree import Peaks, leaf_hash
from models import LogCheckpoint, LogEntry, LogNode, WitnessedCheckpoint

PAGE = 1000  # rows in memory at once


def check_tree(
    session: Session,
    ledger: Ledger,
    report: FsckReport,
    watched: set[int],
    held: Verified | None,
) -> dict[int, bytes]:
    """Recompute the tree and compare every node and root; return the roots at `watched` sizes.

    held: A verified tree to start from; entries below its size are not read.
    """
    report.size = read_size(session)
    report.macs = ledger.entry_key is not None
    peaks, roots = Peaks(), {}
    checkpoints = _checkpoints(session, -1)
    if held is not None:
        peaks, report.before, report.checkpoints = (
            held.peaks.copy(),
            held.size,
            held.checkpoints,
        )
        checkpoints = _checkpoints(session, held.size)
        if held.size > report.size:
            lost = f"the log has {report.size} entries but fsck has verified {held.size}"
            report.add("gap", f"{lost}: restore a newer backup of the database")
    pending = next(checkpoints, None)
    for entry, stored in _entries(session, peaks.size):
        check_entry(entry, report)
        if ledger.entry_key is not None and not ledger.entry_key.is_authentic(entry):
            report.add("mac", "the row is not one that this installation wrote", entry.index)
        if entry.index != peaks.size:
            missing = f"{entry.index - peaks.size} entries are missing"
            report.add("gap", f"{missing}: no later hash can be computed", peaks.size)
            break
        while pending is not None and pending.size <= peaks.size:
            _check_checkpoint(ledger, pending, peaks, report)
            pending = next(checkpoints, None)
        if peaks.size in watched:
            roots[peaks.size] = peaks.root()
            report.edge = peaks.copy(), report.checkpoints
        for level, index, value in peaks.append(leaf_hash(entry.leaf)):
            if stored.get((level, index)) != value:
                state = "wrong" if (level, index) in stored else "missing"
                report.add("node", f"node {index} of level {level} is {state}", entry.index)
    roots[peaks.size] = peaks.root()
    while pending is not None:
        _check_checkpoint(ledger, pending, peaks, report)
        pending = next(checkpoints, None)
    if peaks.size in watched:
        report.edge = peaks, report.checkpoints
    if report.checkpoints == 0:
        report.add("checkpoint", "no checkpoint is stored: the log was never begun")
    _check_strays(session, report)
    return roots


def check_guard(
    session: Session,
    before: Checkpoint,
    after: Checkpoint,
    roots: dict[int, bytes],
    report: FsckReport,
) -> None:
    """Compare the log with its guard, read before and after the snapshot was taken."""
    if before.size > report.size:
        lost = f"the log has {report.size} entries but {before.size} were signed"
        report.add("guard", f"{lost}: restore a newer backup of the database")
    elif roots.get(before.size) != before.root:
        report.add("guard", f"the first {before.size} entries are not those that were signed")
    latest = latest_checkpoint(session)
    if latest is not None and after.size < latest.size:
        behind = f"the guard knows {after.size} signed entries but {latest.size} are published"
        report.add("guard", f"{behind}: the keys directory came from an old backup")


def _entries(
    session: Session, start: int
) -> Iterator[tuple[LogEntry, dict[tuple[int, int], bytes]]]:
    """Yield each entry from `start` on with the stored nodes of its page, by index."""
    while True:
        query = select(LogEntry).where(col(LogEntry.index) >= start)
        page = list(session.exec(query.order_by(col(LogEntry.index)).limit(PAGE)))
        if not page:
            return
        session.expunge_all()
        end = page[-1].index + 1
        stored = _nodes(session, start, end)
        for entry in page:
            yield entry, stored
        start = end


def _nodes(session: Session, start: int, end: int) -> dict[tuple[int, int], bytes]:
    """Return the stored nodes that entries [start, end) complete, and perhaps a few more."""
    ranges = [
        (col(LogNode.level) == level)
        & (col(LogNode.index) >= start >> level)
        & (col(LogNode.index) < end >> level)
        for level in range(end.bit_length())
    ]
    query = columns(col(LogNode.level), col(LogNode.index), col(LogNode.hash))
    rows = session.connection().execute(query.where(or_(*ranges)))
    return {(level, index): value for level, index, value in rows}


def check_entry(entry: LogEntry, report: FsckReport) -> None:
    """Report a leaf that is not one this log writes, or whose columns differ from it."""
    try:
        leaf = parse_leaf(entry.leaf)
    except EntryError:
        report.add("entry", "the leaf is not one this log writes", entry.index)
        return
    day = entry.day if leaf.day is None else leaf.day.isoformat()
    if (entry.kind, entry.event, entry.ref, entry.day) != (
        leaf.kind,
        leaf.event,
        leaf.ref,
        day,
    ):
        report.add("entry", "the columns differ from the leaf", entry.index)


def _checkpoints(session: Session, last: int) -> Iterator[LogCheckpoint]:
    while True:
        query = select(LogCheckpoint).where(col(LogCheckpoint.size) > last)
        page = list(session.exec(query.order_by(col(LogCheckpoint.size)).limit(PAGE)))
        if not page:
            return
        session.expunge_all()
        yield from page
        last = page[-1].size


def _check_checkpoint(
    ledger: Ledger, row: LogCheckpoint, peaks: Peaks, report: FsckReport
) -> None:
    report.checkpoints += 1
    try:
        signed = ledger.open(row.note)
    except LetheError as error:
        report.add("checkpoint", f"the note of size {row.size} does not open: {error.detail}")
        return
    if (signed.size, signed.root) != (row.size, row.root):
        report.add("checkpoint", f"the note of size {row.size} differs from its row")
    if row.size != peaks.size:
        report.add("checkpoint", f"the entries do not reach the checkpoint of size {row.size}")
    elif row.root != peaks.root():
        report.add("checkpoint", f"the checkpoint of size {row.size} signs another root")


def _check_strays(session: Session, report: FsckReport) -> None:
    """Find nodes that no append would have written."""
    size = report.size
    beyond = [
        (col(LogNode.level) == level) & (col(LogNode.index) >= size >> level)
        for level in range(size.bit_length())
    ]
    query = columns(col(LogNode.level), col(LogNode.index)).where(
        or_(
            col(LogNode.level) >= size.bit_length(),
            col(LogNode.level) < 0,
            col(LogNode.index) < 0,
            *beyond,
        )
    )
    for level, index in session.connection().execute(query):
        report.add("node", f"node {index} of level {level} belongs to no tree of this size")
    negative = columns(func.count()).where(col(LogEntry.index) < 0)
    if session.connection().execute(negative).scalar_one():
        report.add("entry", "there are entries of negative index")


def check_witnesses(session: Session, ledger: Ledger, report: FsckReport) -> None:
    """Check witnesses' last checkpoints, and the MACs and checkpoints of stored rows."""
    try:
        for witness in contradictions(session, ledger):
            report.add("witness", f"{witness} {CONTRADICTED}")
    except LogDamagedError as error:
        report.add("witness", f"not compared with what witnesses hold: {error.detail}")
    if ledger.entry_key is None:
        return
    rows = Rows(ledger)
    query = select(WitnessedCheckpoint).order_by(col(WitnessedCheckpoint.size))
    for row in session.exec(query.execution_options(yield_per=100)):
        if not rows.is_authentic(row):
            report.add("witnessed", f"the row of size {row.size} was not written here")
            continue
        published = session.get(LogCheckpoint, abs(row.size))  # negative: of a later quorum
        if published is None or not _is_same(row.note, published.note):
            report.add("witnessed", f"the checkpoint of size {abs(row.size)} is not the log's")


def _is_same(note: str, published: str) -> bool:
    try:
        return split_note(note)[0] == split_note(published)[0]
    except LetheError:
        return False
