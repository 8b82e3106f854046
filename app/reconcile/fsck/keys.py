"""fsck of keys, tokens and callbacks: this installation wrote each row and its revocation.

A finding names the table, never the row: a keyid may identify its holder.
"""

from sqlmodel import Session, col, select

from app.ledger.callback_rows import is_authentic
from app.ledger.key_rows import KeyRows, T, known_rows, loaded
from app.ledger.sequencer import Ledger
from app.reconcile.findings import FsckReport
from lethe.errors import LetheError
from models import BearerToken, Callback, RequesterKey, Webhook
from models.database.types import UnsealedError

FOREIGN = "has a row that is not as this installation wrote it"
RETURNED = "has a row from before its revocation: revoke it again"
UNLISTED = "has a revoked row that revoked.list lacks: restore the list's newest backup"


def check_keys(session: Session, report: FsckReport) -> None:
    """Check each row's MAC, and compare its revocation with the list beside the keys.

    Does nothing without `entries.key`; checks only tokens without the master key.
    """
    if (rows := known_rows(session)) is None:
        return
    for identity in session.exec(select(BearerToken.digest)).all():
        _check(session, rows, BearerToken, identity, "token", report)
    try:
        for name in session.exec(select(Webhook.row).order_by(col(Webhook.row))):
            _check(session, rows, Webhook, name, "webhook", report)
    except UnsealedError:
        return
    for identity in session.exec(select(RequesterKey.keyid).order_by(col(RequesterKey.keyid))):
        try:
            _check(session, rows, RequesterKey, identity, "key", report)
        except UnsealedError:  # the report says that sealed data was not checked
            return


def _check(
    session: Session,
    rows: KeyRows,
    table: type[T],
    identity: str,
    check: str,
    report: FsckReport,
) -> None:
    row = loaded(session, table, identity)
    if row is None or not rows.is_written_here(row):
        report.add(check, f"{table.__tablename__} {FOREIGN}")
    elif not rows.is_believed(row):
        with Session(session.get_bind()) as now:  # the service may have revoked it meanwhile
            again = loaded(now, table, identity)
            if again is None or not rows.is_believed(again):
                report.add(check, f"{table.__tablename__} {RETURNED}")
    # A revocation is listed before it is stored, and the list is read after the row.
    elif (
        not isinstance(row, Webhook)
        and row.revoked_at is not None
        and rows.tag(row) not in rows.revoked()
    ):
        report.add(check, f"{table.__tablename__} {UNLISTED}")
    if row is not None:
        session.expunge(row)


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
            report.add("callback", f"callbacks {FOREIGN}: delete it")
            continue
        if row is None:  # deleted meanwhile
            continue
        if not is_authentic(key, row):
            report.add("callback", f"callbacks {FOREIGN}: delete it")
        session.expunge(row)
