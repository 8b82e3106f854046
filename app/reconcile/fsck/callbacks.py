"""fsck of callbacks: each row has the address and request that this installation wrote."""

from sqlmodel import Session, col, select

from app.ledger.callback_rows import is_authentic
from app.ledger.sequencer import Ledger
from app.reconcile.findings import FsckReport
from lethe.errors import LetheError
from models import Callback
from models.database.sealed import UnsealedError

FOREIGN = "callbacks has a row that is not as this installation wrote it: delete it"


def check_callbacks(session: Session, ledger: Ledger, report: FsckReport) -> None:
    """Compare the id of each row with its content; does nothing without entries.key."""
    if (key := ledger.entry_key) is None:
        return
    names = session.exec(select(Callback.id, Callback.ref).order_by(col(Callback.id))).all()
    for name in names:
        try:
            row = session.get(Callback, tuple(name))
        except UnsealedError:
            return
        except (LetheError, ValueError):  # sealed for another place, or an invalid time
            report.add("callback", FOREIGN)
            continue
        if row is None:  # deleted meanwhile
            continue
        if not is_authentic(key, row):
            report.add("callback", FOREIGN)
        session.expunge(row)
