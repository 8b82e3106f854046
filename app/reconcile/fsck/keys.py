"""fsck of keys and tokens: each row is as this installation wrote it, revocations too.

A finding names the table and never the row: a keyid may name its holder.
"""

from sqlmodel import Session, col, select

from app.ledger.key_rows import KeyRows, T, known_rows, loaded
from app.reconcile.findings import FsckReport
from models import BearerToken, RequesterKey, Webhook
from models.database.sealed import UnsealedError

FOREIGN = "has a row that is not as this installation wrote it"
RETURNED = "has a row from before its revocation: revoke it again"
UNLISTED = "has a revoked row that revoked.list lacks: restore the list's newest backup"


def check_keys(session: Session, report: FsckReport) -> None:
    """Look at each row's MAC, and compare its revocation with the list beside the keys.

    Without `entries.key` nothing is looked at, as the report says of MACs; without the master
    key only tokens are.
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
        except UnsealedError:  # the report says that nothing sealed was opened
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
        with Session(session.get_bind()) as now:  # a service at work revokes meanwhile
            again = loaded(now, table, identity)
            if again is None or not rows.is_believed(again):
                report.add(check, f"{table.__tablename__} {RETURNED}")
    # Listed first, then stored: what is revoked meanwhile is in the list, read after the row.
    elif (
        not isinstance(row, Webhook)
        and row.revoked_at is not None
        and rows.tag(row) not in rows.revoked()
    ):
        report.add(check, f"{table.__tablename__} {UNLISTED}")
    if row is not None:
        session.expunge(row)
