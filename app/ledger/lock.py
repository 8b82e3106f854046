"""The log's lock: one process at a time appends, and sees all that the previous one wrote."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Dialect, func, text
from sqlalchemy import select as columns
from sqlalchemy.engine import Engine
from sqlmodel import Session

from app.ledger.entry_macs import EntryRow
from lethe.errors import LetheError
from models import LogEntry, LogNode
from models.database import bulk
from models.database.session import bounds, reading
from models.database.types import utcnow

LOCK = int.from_bytes(sha256(b"lethe log").digest()[:8], "big", signed=True)


class LockStuckError(LetheError):
    """A stalled process holds the log's lock."""

    slug, title, status = "log-lock-stuck", "The log's lock is held", 503


def take_lock(session: Session) -> None:
    """Wait until this transaction is the only one that may append to the log.

    On SQLite the writer transaction itself is that lock (`models.database.session`). On
    PostgreSQL the lock is taken before the transaction reads, and READ COMMITTED lets each
    later statement see what the previous holder committed.
    """
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        connection.execute(columns(func.pg_advisory_xact_lock(LOCK)))


@dataclass(frozen=True, slots=True)
class Above:
    """The entries and nodes above a tree of `size`, up to MOST_ABOVE entries.

    entries: by index. nodes: {(level, index): hash} of at least all subtrees that these entries
    complete.
    """

    size: int
    entries: dict[int, EntryRow]
    nodes: dict[tuple[int, int], bytes]


@dataclass(frozen=True, slots=True)
class LogState:
    """The log's state in the database, and the database's time.

    mac: of the last entry, None if there is none. published: the size of the largest stored
    checkpoint, None if no log was begun. above: the entries above the `known` size. answers:
    the rows of the caller's statements. contended: another process held the lock.
    """

    size: int
    mac: bytes | None
    published: int | None
    now: datetime
    above: Above | None
    answers: bulk.Rows
    contended: bool


def lock_alone(session: Session) -> bool:
    """Take the lock in a separate message; return whether another process held it.

    The caller can then choose its reads by what arrived during the wait. On an engine of
    `models.database.session.unbounded` this is a writer's first message.
    """
    connection = session.connection()
    if connection.dialect.name == "sqlite":
        return False  # the transaction is the lock, and has begun
    *_, ((free,),), _ = bulk.run(connection, *_locking(connection))
    return not free


def lock_log(
    session: Session,
    known: int | None = None,
    statements: Sequence[bulk.Statement] = (),
    *,
    locked: bool = False,
) -> LogState:
    """Take the lock as `take_lock` and return the log's state under it.

    known: a size of the log; the entries above it are read as well. statements: the caller's,
    to run under the lock. locked: `lock_alone` has taken the lock. On an engine of
    `models.database.session.unbounded` this is a writer's first message; PostgreSQL takes one
    message for all of it.
    """
    connection = session.connection()
    dialect = connection.dialect
    above = [] if known is None else _selection_above(dialect, known)
    state, lock = bulk.Statement(_STATE), list[bulk.Statement]()
    if dialect.name != "sqlite":
        state = bulk.Statement(f"{_STATE}, clock_timestamp()")
        lock = [] if locked else _locking(connection)
    found = bulk.run(connection, *lock, state, *above, *statements)
    contended = bool(lock) and not found[len(lock) - 2][0][0]
    del found[: len(lock)]
    ((last, mac, published, *times),) = found.pop(0)
    now = times[0].astimezone(UTC) if times else utcnow()
    size = 0 if last is None else last + 1
    seen = None if known is None else _above(known, *found[: len(above)])
    return LogState(size, mac, published, now, seen, found[len(above) :], contended)


def _locking(connection: Connection) -> list[bulk.Statement]:
    """Return a PostgreSQL writer's first statements; the last two take the lock.

    The first of those two returns whether the lock was free, and takes it if so. Taking it
    twice is harmless: the transaction's end releases both.
    """
    locks = (f"SELECT {how}_advisory_xact_lock({LOCK})" for how in ("pg_try", "pg"))
    return [bulk.Statement(part) for part in (bounds(connection), _BY_KEY, *locks) if part]


_STATE = (
    'SELECT (SELECT max("index") FROM log_entries), '
    '(SELECT mac FROM log_entries ORDER BY "index" DESC LIMIT 1), '
    "(SELECT max(size) FROM log_checkpoints)"
)
# A connection caches the plans of statements and foreign keys. A plan made while a table was
# nearly empty would scan all of it for each row until the server next analyses the table.
_BY_KEY = "SELECT set_config('enable_seqscan', 'off', true)"
MOST_ABOVE = 512  # entries; two batches of another process
_RANGE = bulk.types(LogEntry, low="index", high="index")
_ENTRIES_ABOVE = (
    'SELECT e."index", e.leaf, e.kind, e.event, e.ref, e.day, e.mac FROM {rows} '
    'JOIN log_entries e ON e."index" >= given.low AND e."index" < given.high'
)
_ROWS = bulk.types(LogNode, level="level", low="index", high="index")
_NODES_ABOVE = (
    'SELECT n.level, n."index", n.hash FROM {rows} JOIN log_nodes n '
    'ON n.level = given.level AND n."index" >= given.low AND n."index" < given.high'
)


def _selection_above(dialect: Dialect, known: int) -> list[bulk.Statement]:
    high = known + MOST_ABOVE
    levels = [(one, known >> one, (high >> one) + 1) for one in range(high.bit_length())]
    return [
        bulk.over(dialect, _ENTRIES_ABOVE, _RANGE, [(known, high)]),
        bulk.over(dialect, _NODES_ABOVE, _ROWS, levels),
    ]


def _above(
    known: int, entries: Sequence[tuple[Any, ...]], nodes: Sequence[tuple[Any, ...]]
) -> Above:
    return Above(
        known,
        {row[0]: EntryRow(*row) for row in entries},
        {(level, at): value for level, at, value in nodes},
    )


def require_lock_moves(engine: Engine, patience_s: float) -> None:
    """Check that no stalled transaction holds the log's lock.

    On PostgreSQL this reads how long the holder's session has been in its current state; the
    service does not see sessions of other roles. On SQLite it tries to take the lock. Raises
    LockStuckError: A session has held the lock for patience_s seconds without progress.
    """
    if engine.dialect.name == "sqlite":
        stuck = not _is_free(engine, patience_s)
    else:
        high, low = (LOCK >> 32) & 0xFFFFFFFF, LOCK & 0xFFFFFFFF
        with reading(engine).connect() as connection:
            still = connection.execute(_STANDS_STILL, {"high": high, "low": low}).scalar()
        stuck = still is not None and float(still) > patience_s
    if stuck:
        raise LockStuckError(
            "a process holds the log's lock and does not go on: resume or end it; PostgreSQL "
            "ends its transaction after LETHE_STALL_SECONDS"
        )


_STANDS_STILL = text(
    "SELECT max(extract(epoch FROM clock_timestamp() - a.state_change)) "
    "FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid "
    "WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 "
    "AND l.classid::bigint = :high AND l.objid::bigint = :low "
    "AND a.datname = current_database()"
)


def _is_free(engine: Engine, patience_s: float) -> bool:
    uri = f"file:{quote(engine.url.database or '')}?mode=rw"
    connection = sqlite3.connect(uri, timeout=patience_s, isolation_level=None, uri=True)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            raise
        return False
    finally:
        connection.close()
    return True
