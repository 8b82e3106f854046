"""Engines, and what a transaction means on each database.

A plain transaction on `make_engine(...)` is a writer. On SQLite it holds the one write lock
from its first statement (BEGIN IMMEDIATE): a transaction that read first and wrote later
could otherwise fail with SQLITE_BUSY_SNAPSHOT, which no timeout cures. So open it late and
close it soon, and never wait for another writer inside it. Whoever only reads uses
`reading(engine)`: a snapshot that blocks nobody and that the database refuses to write in.

Every wait for another writer has an end. On PostgreSQL a writer whose process stands still is
ended by the server, so that a frozen process does not keep the log's lock; its own next
statement fails. On SQLite nobody can end it: the others give up after WAIT_S.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from sqlalchemy import Connection, create_engine, event, inspect
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import (
    DBAPIError,
    DisconnectionError,
    InterfaceError,
    OperationalError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm.util import identity_key
from sqlalchemy.pool import ConnectionPoolEntry
from sqlmodel import Session, SQLModel, select

# A writer waits this long for its turn, less than a client for its answer (30 s); transactions
# here take milliseconds.
WAIT_S = 15.0
CONNECT_S = 5  # for a server's answer to a new connection
# More than the 40 threads that serve requests, each of which holds one connection at most
# while it holds anything: a writer never waits for readers who wait for it.
CONNECTIONS_KEPT, CONNECTIONS_MORE = 10, 50
READ_ONLY = "lethe_read_only"  # execution option of SQLite connections
USED = "lethe_used"  # of a pooled connection: when it was given back, by the monotonic clock
FRESH_S = 1.0  # a connection given back since then is taken for open
UNSYNCED = "lethe_unsynced"  # execution option: commits are not synced to the disk
UNBOUNDED = "lethe_unbounded"  # execution option: whoever begins sets the bounds, with its lock
STALL = "lethe_stall"  # execution option: seconds that a writer may stand still

# Per connection. secure_delete zeroes deleted content, or a shredded key could be read from
# a free page; FULL makes a commit in WAL mode durable, NORMAL would lose the last ones.
_PRAGMAS = ("synchronous=FULL", "foreign_keys=ON", "secure_delete=ON")


_ENDED = ("25P03", "25P04", "57014", "57P01", "57P02", "57P03")
_BOUNDS = (
    "SELECT set_config('lock_timeout', '{wait}', true), "
    "set_config('statement_timeout', '{stall}', true), "
    "set_config('idle_in_transaction_session_timeout', '{stall}', true)"
)


class UnsupportedDatabaseError(ValueError):
    """A database URL of another kind than SQLite in a file, or PostgreSQL."""


def make_engine(url: str, stall_s: int | None = None) -> Engine:
    """Return the engine for `url`; transactions on it are writers (see above).

    stall_s: on PostgreSQL the server ends a writer that neither commits nor asks for anything
    for so many seconds, and any statement of it that takes longer; None for no limit, as
    migrations need it. Readers have none.

    Raises:
        UnsupportedDatabaseError: Neither a SQLite file nor PostgreSQL.
    """
    parsed = make_url(url)
    pool: dict[str, Any] = {
        "pool_size": CONNECTIONS_KEPT,
        "max_overflow": CONNECTIONS_MORE,
        "hide_parameters": True,  # a row's values must not reach a log inside an error's text
    }
    match parsed.get_backend_name():
        case "sqlite":
            return _sqlite_engine(parsed, pool)
        case "postgresql":
            # Of its own accord psycopg prepares what is asked often, and deallocates all
            # statements of the connection after a rollback: those of `models.database.pipeline`
            # too.
            known: dict[str, Any] = {"prepare_threshold": None}
            if "connect_timeout" not in parsed.query:
                known["connect_timeout"] = CONNECT_S
            engine = create_engine(
                parsed,
                isolation_level="READ COMMITTED",
                connect_args=known,
                **pool,
            )
            engine.update_execution_options(**{STALL: stall_s})
            event.listen(engine, "begin", _begin_on_postgresql)
            event.listen(engine, "checkin", _note_use)
            event.listen(engine, "checkout", _ping)
            event.listen(engine, "after_cursor_execute", _end_pipeline)
            return engine
    raise UnsupportedDatabaseError(
        "LETHE_DATABASE_URL must be sqlite:///FILE or postgresql://…"
    )


@contextmanager
def opened_engine(url: str) -> Iterator[Engine]:
    """The engine for `url`, closed at the end of the block. Raises as `make_engine`."""
    engine = make_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()


def reading(engine: Engine) -> Engine:
    """Return an engine on the same pool whose transactions are snapshots and cannot write."""
    if engine.dialect.name == "sqlite":
        return engine.execution_options(**{READ_ONLY: True})
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def unbounded(engine: Engine) -> Engine:
    """Return an engine on the same pool for who sets `bounds` in the first message it sends."""
    return engine.execution_options(**{UNBOUNDED: True})


def bounds(connection: Connection) -> str | None:
    """Return the statement that bounds how long a writer waits and stands still, if any does.

    For its transaction only, so that a pooler between may share the connection.
    """
    stall_s = connection.get_execution_options().get(STALL)
    if stall_s is None:
        return None
    return _BOUNDS.format(wait=int(WAIT_S * 1000), stall=stall_s * 1000)


def unsynced(engine: Engine) -> Engine:
    """Return an engine on the same pool for what need not survive a power cut by itself.

    Its commits survive the end of the process. They reach the disk with the next commit of
    the other writers, or before: both databases write one log ahead, in order.
    """
    return engine.execution_options(**{UNSYNCED: True})


def unavailable(error: BaseException) -> bool:
    """Return whether an error says that the database is away, busy or full, and may pass."""
    # SQLite's one class of errors has also what never passes: a table that is missing.
    if getattr(getattr(error, "orig", None), "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:
        return False
    if isinstance(error, OperationalError | InterfaceError | PoolTimeoutError):
        return True
    # What the server says to who stood still: SQLSTATE 25P03 and its kin are of other classes.
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    return isinstance(error, DBAPIError) and (error.connection_invalidated or state in _ENDED)


def _begin_on_postgresql(connection: Connection) -> None:
    options = connection.get_execution_options()
    late = options.get("postgresql_readonly", False) or options.get(UNBOUNDED, False)
    if not late and (bounded := bounds(connection)) is not None:
        connection.exec_driver_sql(bounded)
    if options.get(UNSYNCED, False):
        connection.exec_driver_sql("SET LOCAL synchronous_commit TO OFF")


def _note_use(_connection: Any, record: ConnectionPoolEntry) -> None:
    record.info[USED] = time.monotonic()


def _ping(connection: Any, record: ConnectionPoolEntry, _proxy: Any) -> None:
    """Notice a restarted server when a connection is taken, not in a request.

    A connection that was used a moment ago is not asked: under load each would be, each time.
    Raises DisconnectionError, after which the pool opens another.
    """
    import psycopg  # PostgreSQL alone has this listener, and has imported it

    used = record.info.get(USED)
    if used is None or time.monotonic() - used < FRESH_S:
        return
    try:
        connection.autocommit = True
        connection.execute("")
        connection.autocommit = False
    except psycopg.Error as error:
        raise DisconnectionError from error


def _end_pipeline(
    _connection: Connection, cursor: Any, _text: str, _values: Any, _context: Any, many: bool
) -> None:
    """After many rows, ask for something: only then does the server's idle timer run.

    psycopg sends them as a pipeline and flushes it. PostgreSQL stops the timer at that message
    and starts it with its answer to a query: who froze in between would keep the log's lock.
    """
    if many:
        cursor.connection.execute("")


def _sqlite_engine(url: URL, pool: dict[str, Any]) -> Engine:
    if url.database in (None, "", ":memory:"):
        raise UnsupportedDatabaseError("SQLite must be a file: a log in memory is no log")
    with suppress(OSError):  # it is there, or SQLite says what is wrong with the place
        # Journal and shared memory are made with the rights of the file.
        os.close(os.open(str(url.database), os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    engine = create_engine(url, connect_args={"timeout": WAIT_S}, **pool)
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    assert isinstance(connection, sqlite3.Connection)
    # Python's driver would begin late, not before a SELECT or SAVEPOINT: `_begin` does it.
    connection.isolation_level = None
    _use_wal(connection)
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL. SQLite does not wait its busy timeout for this, so we do."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    read_only = options.get(READ_ONLY, False)
    if not read_only:
        level = "NORMAL" if options.get(UNSYNCED, False) else "FULL"
        connection.exec_driver_sql(f"PRAGMA synchronous={level}")
    connection.exec_driver_sql(f"PRAGMA query_only={'ON' if read_only else 'OFF'}")
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


T = TypeVar("T")
Row = TypeVar("Row", bound=SQLModel)
CHUNK = 500  # SQLite's oldest limit on bound variables is 999


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split a list for IN (…)."""
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]


def read_by_id(
    session: Session, kind: type[Row], ids: Sequence[str] | Sequence[int]
) -> list[Row]:
    """Return the rows with these primary keys, in no order, by few queries.

    The session keeps them: `session.get` of each needs no query, until they are expired. What
    it holds already is not read again.
    """
    key = inspect(kind).primary_key[0]
    held = {one: session.identity_map.get(identity_key(kind, one)) for one in {*ids}}
    found = [row for row in held.values() if row is not None and not inspect(row).expired]
    known = {one for one, row in held.items() if row is not None and not inspect(row).expired}
    for chunk in chunks([one for one in held if one not in known]):
        found += session.exec(select(kind).where(key.in_(chunk)))
    session.info.setdefault("read", []).append(found)  # it forgets what nobody holds
    return found
