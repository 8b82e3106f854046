"""Removes old versions of overwritten and deleted rows from the database.

A destroyed key is gone from the table at once, and from the file a little later:

- SQLite zeroes the old content in the database file (secure_delete,
  `models.database.session`), but the write-ahead log holds earlier pages until it is
  checkpointed and truncated, which `scrub` does.
- PostgreSQL keeps the old row version until VACUUM removes it. `scrub` does so for TABLES;
  autovacuum would do it once enough rows of a table changed. The freed bytes are overwritten
  when the page is reused, or at once by VACUUM FULL, which locks the table. Archived WAL,
  replicas and backups keep their copies: see the officer guide.
"""

from sqlalchemy import text
from sqlalchemy.engine import Engine

from models.database.session import WAIT_S

# The tables with keys, sealed columns, tags, salts, and numbers of records.
TABLES = (
    "artifacts", "audit_pairs", "callbacks", "cases", "contributions", "erasure_requests",
    "feature_blocks", "intake_challenges", "intake_codes", "intake_proofs", "key_events",
    "legal_holds", "models", "people", "people_sums", "records", "request_events",
    "requester_keys", "retention_removals", "round_members", "rounds", "subjects", "tombstones",
    "used_nonces", "webhooks",
)  # fmt: skip
WAIT_MS = 500  # for transactions of milliseconds; a longer one means "call again later"


def scrub(engine: Engine) -> bool:
    """Remove old row versions now; return False if a running transaction still needs them.

    Call it outside any transaction. False is not a failure: call it again later. On PostgreSQL,
    True means that VACUUM ran; it keeps row versions that older snapshots still see.
    """
    if engine.dialect.name == "sqlite":
        return _cut_write_ahead_log(engine)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"VACUUM {', '.join(TABLES)}"))
    return True


def _cut_write_ahead_log(engine: Engine) -> bool:
    # On the driver's connection: a checkpoint cannot run inside a transaction.
    connection = engine.raw_connection()
    try:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={WAIT_MS}")
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        busy, _, _ = cursor.fetchone() or (1, -1, -1)
        cursor.execute(f"PRAGMA busy_timeout={WAIT_S * 1000:.0f}")
        cursor.close()
        return busy == 0
    finally:
        connection.close()
