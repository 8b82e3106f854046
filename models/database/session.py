"""Engines, and the semantics of transactions on each database.

A plain transaction on `make_engine(...)` is a writer. On SQLite it holds the single write lock
from its first statement (BEGIN IMMEDIATE): a transaction that reads first and writes later
could otherwise fail with SQLITE_BUSY_SNAPSHOT, which no timeout cures. So open it late, close
it soon, and never wait for another writer inside it. For reads use `reading(engine)`: a
snapshot that blocks no other transaction and cannot write.

Every wait for another writer is bounded. On PostgreSQL the server ends a stalled writer, so
that a frozen process does not keep the log's lock; its next statement fails. SQLite cannot end
a stalled writer: the others give up after WAIT_S.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, TypeVar, TypeVarTuple, overload

from sqlalchemy import Connection, create_engine, event, inspect
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, DisconnectionError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm.util import identity_key
from sqlalchemy.pool import ConnectionPoolEntry
from sqlmodel import Session, SQLModel, select
from sqlmodel.sql.expression import Select, SelectOfScalar

# A writer's wait for its turn: less than a client's timeout (30 s). Transactions take
# milliseconds.
WAIT_S = 15.0
# Of a PostgreSQL connection. A machine that is gone, with its power or behind a network that
# drops packets, is noticed after 30 s; a slow answer of one that is there is waited for.
LIBPQ = {
    "connect_timeout": 5,  # seconds, for the answer of each address
    "keepalives_idle": 15,  # seconds; Linux's own default is two hours
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds, for what was sent and not confirmed
}
# More than the 40 threads that serve requests, each of which holds at most one connection: a
# writer never waits for a connection held by readers that wait for the writer.
CONNECTIONS_KEPT, CONNECTIONS_MORE = 10, 50
READ_ONLY = "lethe_read_only"  # execution option of SQLite connections
USED = "lethe_used"  # of a pooled connection: when it was returned, by the monotonic clock
FRESH_S = 1.0  # a connection returned this recently is assumed to be open
UNSYNCED = "lethe_unsynced"  # execution option: commits are not synced to the disk
UNBOUNDED = "lethe_unbounded"  # execution option: the caller sets the bounds with its lock
STALL = "lethe_stall"  # execution option: seconds that a writer may stall

# Per connection. secure_delete zeroes deleted content; otherwise a shredded key could be read
# from a free page. FULL makes commits in WAL mode durable; NORMAL could lose the last ones.
_PRAGMAS = ("synchronous=FULL", "foreign_keys=ON", "secure_delete=ON")


_ENDED = ("25P03", "25P04", "57014", "57P01", "57P02", "57P03")
_BOUNDS = (
    "SELECT set_config('lock_timeout', '{wait}', true), "
    "set_config('statement_timeout', '{statement}', true), "
    "set_config('idle_in_transaction_session_timeout', '{stall}', true)"
)


class UnsupportedDatabaseError(ValueError):
    """The database URL is neither a SQLite file nor PostgreSQL."""


def make_engine(url: str, stall_s: int | None = None) -> Engine:
    """Return the engine for `url`; transactions on it are writers (see above).

    stall_s: on PostgreSQL the server ends a writer that is idle in its transaction for this
    many seconds, and any of its statements that takes longer, after at most WAIT_S for a lock;
    None for no limit, for what runs while no service does, such as migrations. Readers have no
    limit.

    Raises UnsupportedDatabaseError: neither a SQLite file nor PostgreSQL.
    """
    parsed = make_url(url)
    pool: dict[str, Any] = {
        "pool_size": CONNECTIONS_KEPT,
        "max_overflow": CONNECTIONS_MORE,
        # The connection used last is used next. In turns, each of the kept ones would fill its
        # page cache and its statements (on SQLite 2 MB and more a connection).
        "pool_use_lifo": True,
        "hide_parameters": True,  # error texts, which may be logged, must not have row values
    }
    match parsed.get_backend_name():
        case "sqlite":
            return _sqlite_engine(parsed, pool)
        case "postgresql":
            # By default psycopg prepares frequent statements, and after a rollback deallocates
            # all of the connection's statements, including those of `models.database.pipeline`.
            known: dict[str, Any] = {"prepare_threshold": None}
            known |= {name: value for name, value in LIBPQ.items() if name not in parsed.query}
            engine = create_engine(
                parsed, isolation_level="READ COMMITTED", connect_args=known, **pool
            )
            engine.update_execution_options(**{STALL: stall_s})
            event.listen(engine, "connect", _set_on_postgresql)
            event.listen(engine, "begin", _begin_on_postgresql)
            event.listen(engine, "checkin", _note_use)
            event.listen(engine, "checkout", _ping)
            event.listen(engine, "after_cursor_execute", _end_pipeline)
            return engine
    raise UnsupportedDatabaseError(
        "LETHE_DATABASE_URL must be sqlite:///FILE or postgresql://…"
    )


def _set_on_postgresql(connection: Any, _: ConnectionPoolEntry) -> None:
    """Set what a role could have changed for itself for ever (ALTER ROLE … SET).

    A commit must be durable before its receipt is signed; bulk inserts send NULLs in arrays.
    """
    connection.autocommit = True
    with closing(connection.cursor()) as cursor:
        cursor.execute(
            "SELECT set_config('synchronous_commit', 'on', false), "
            "set_config('array_nulls', 'on', false)"
        )
    connection.autocommit = False


@contextmanager
def opened_engine(url: str, stall_s: int | None = None) -> Iterator[Engine]:
    """The engine for `url`, as of `make_engine`, closed at the end of the block."""
    engine = make_engine(url, stall_s)
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
    """Return an engine on the same pool whose users set `bounds` in their first message."""
    return engine.execution_options(**{UNBOUNDED: True})


def bounds(connection: Connection) -> str | None:
    """Return the statement that limits a writer's waits and stalls, None without a limit.

    It is limited to the transaction, so that a connection pooler may share the connection.
    """
    stall_s = connection.get_execution_options().get(STALL)
    if stall_s is None:
        return None
    wait, stall = int(WAIT_S * 1000), stall_s * 1000
    # A statement's time includes its wait for a lock. With the stall limit alone, a writer
    # would fail behind a stalled one at the moment that the server ends it.
    return _BOUNDS.format(wait=wait, statement=wait + stall, stall=stall)


def unsynced(engine: Engine) -> Engine:
    """Return an engine on the same pool for commits that need not survive a power cut.

    Its commits survive the end of the process. They reach the disk at the latest with the next
    commit of another writer, since both databases write one ordered write-ahead log.
    """
    return engine.execution_options(**{UNSYNCED: True})


def unavailable(error: BaseException) -> bool:
    """Return whether an error is transient: the database is unreachable, busy or full."""
    # SQLite uses the same class for permanent errors, such as a missing table.
    if getattr(getattr(error, "orig", None), "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:
        return False
    if isinstance(error, OperationalError | InterfaceError | PoolTimeoutError):
        return True
    # Errors of ended stalled writers, SQLSTATE 25P03 and others, have other classes.
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
    """Detect a restarted server at checkout, not in a request.

    A recently used connection is not tested, since under load that would be every checkout.
    Raises DisconnectionError, after which the pool opens another connection.
    """
    import psycopg  # only PostgreSQL has this listener, and has imported it

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
    """Send a query after executemany, to start the server's idle timer.

    psycopg sends the rows as a pipeline and flushes it. PostgreSQL stops the timer at that
    message and restarts it only with its answer to a query: a process that froze in between
    would keep the log's lock.
    """
    if many:
        cursor.connection.execute("")


def _sqlite_engine(url: URL, pool: dict[str, Any]) -> Engine:
    if url.database in (None, "", ":memory:"):
        raise UnsupportedDatabaseError("SQLite must be a file: a log in memory is no log")
    with suppress(OSError):  # the file exists, or SQLite will report the problem
        # SQLite creates journal and shared memory with the file's permissions.
        os.close(os.open(str(url.database), os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    engine = create_engine(url, connect_args={"timeout": WAIT_S}, **pool)
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    assert isinstance(connection, sqlite3.Connection)
    # `_begin` begins transactions: Python's driver would not do so before SELECT or SAVEPOINT.
    connection.isolation_level = None
    _use_wal(connection)
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL. SQLite's busy timeout does not apply to this, so retry here."""
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
Columns = TypeVarTuple("Columns")
Row = TypeVar("Row", bound=SQLModel)
CHUNK = 500  # SQLite's oldest limit on bound variables is 999


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split a list for IN (…)."""
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]


@overload
def rows_in(
    session: Session, query: SelectOfScalar[T], column: Any, values: Sequence[Any]
) -> Iterator[T]: ...
@overload
def rows_in(
    session: Session, query: Select[*Columns], column: Any, values: Sequence[Any]
) -> Iterator[tuple[*Columns]]: ...
def rows_in(session: Session, query: Any, column: Any, values: Sequence[Any]) -> Iterator[Any]:
    """Yield the rows of a query whose column has one of some values, however many they are."""
    for chunk in chunks(values):
        yield from session.exec(query.where(column.in_(chunk))).all()


def read_by_id(
    session: Session, kind: type[Row], ids: Sequence[str] | Sequence[int]
) -> list[Row]:
    """Return the rows with these primary keys, unordered, with few queries.

    The session keeps them, so `session.get` needs no query until they expire. Rows that it
    already holds are not read again.
    """
    key = inspect(kind).primary_key[0]
    held = {one: session.identity_map.get(identity_key(kind, one)) for one in {*ids}}
    found = [row for row in held.values() if row is not None and not inspect(row).expired]
    known = {one for one, row in held.items() if row is not None and not inspect(row).expired}
    for chunk in chunks([one for one in held if one not in known]):
        found += session.exec(select(kind).where(key.in_(chunk)))
    session.info.setdefault("read", []).append(found)  # the session's own references are weak
    return found
