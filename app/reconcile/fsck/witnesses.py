"""fsck of witnesses: compares cosigned checkpoints and witnesses' states with the log."""

from sqlmodel import Session, col, select

from app.ledger.sequencer import Ledger
from app.ledger.storage import LogDamagedError
from app.reconcile.findings import FsckReport
from app.witnesses.rows import Rows
from app.witnesses.standing import CONTRADICTED, contradictions
from lethe.errors import LetheError
from lethe.log.note import split_note
from models import LogCheckpoint, WitnessedCheckpoint


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
        published = session.get(LogCheckpoint, row.size)
        if published is None or not _is_same(row.note, published.note):
            report.add("witnessed", f"the checkpoint of size {row.size} is not the log's")


def _is_same(note: str, published: str) -> bool:
    try:
        return split_note(note)[0] == split_note(published)[0]
    except LetheError:
        return False
