"""The log's three tables: entries, nodes, checkpoints. Only SQL here, no decisions."""

import json
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, Dialect, func, text
from sqlalchemy import select as columns
from sqlalchemy.engine import Engine
from sqlmodel import Session, col, select

from app.ledger.entry_macs import EntryRow
from lethe.errors import LetheError
from lethe.log.tree import HASH_SIZE, NodeReader, tree_root
from models import (
    LogCheckpoint,
    LogEntry,
    LogNode,
)
from models.database import bulk
from models.database.session import bounds, reading
from models.database.types import utcnow

LOCK = int.from_bytes(sha256(b"lethe log").digest()[:8], "big", signed=True)
CACHED = 32_768  # nodes that proofs share in memory, about 10 MB: the top 14 levels and more

T = TypeVar("T")


class LockStuckError(LetheError):
    """A process holds the log's lock and stands still."""

    slug = "log-lock-stuck"
    title = "The log's lock is held"
    status = 503


class LogDamagedError(LetheError):
    """The stored log lacks something that it must hold."""

    slug = "log-damaged"
    title = "The log is damaged"
    status = 503


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
    """The entries and nodes that lie above a tree of `size`, as far as they were read.

    entries: by their index, up to MOST_ABOVE. nodes: {(level, index): hash}, of all subtrees
    that these entries complete, and maybe more.
    """

    size: int
    entries: dict[int, EntryRow]
    nodes: dict[tuple[int, int], bytes]


@dataclass(frozen=True, slots=True)
class LogState:
    """What the database says of the log, and its time.

    mac: of the last entry, None if there is none. published: the size of the largest stored
    checkpoint, None where no log was begun. above: what lies above the size that was asked
    for. answers: of the statements that were run with it. contended: others had the lock.
    """

    size: int
    mac: bytes | None
    published: int | None
    now: datetime
    above: Above | None
    answers: bulk.Rows
    contended: bool


def lock_alone(session: Session) -> bool:
    """Take the lock in a message of its own; return whether somebody else had it.

    Whoever reads only then can ask for more than what it knew when it began to wait. On an
    engine of `models.database.session.unbounded` this is a writer's first message.
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
    """Take the lock as `take_lock` and return what the previous holder left.

    known: a size of the log; what lies above it is read as well. statements: of the caller,
    which run under the lock. locked: by `lock_alone`. On an engine of
    `models.database.session.unbounded` this is a writer's first message, and on PostgreSQL one
    only.
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
    """Return what a writer on PostgreSQL begins with; the last two take the lock.

    The first of these says whether it was free, and counts as one holding more.
    """
    locks = (f"SELECT {how}_advisory_xact_lock({LOCK})" for how in ("pg_try", "pg"))
    return [bulk.Statement(part) for part in (bounds(connection), _BY_KEY, *locks) if part]


_STATE = (
    'SELECT (SELECT max("index") FROM log_entries), '
    '(SELECT mac FROM log_entries ORDER BY "index" DESC LIMIT 1), '
    "(SELECT max(size) FROM log_checkpoints)"
)
# Plans of statements and foreign keys are kept with the connection. One that was made while a
# table was nearly empty would read all of it, for each row, until the server next analyses it.
_BY_KEY = "SELECT set_config('enable_seqscan', 'off', true)"
MOST_ABOVE = 512  # entries; two batches of whoever else appends
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
    """Return if nobody stands still in a transaction that holds the log's lock.

    On PostgreSQL the server knows for how long the holder has asked for nothing, or for one
    thing; sessions of other roles are not shown to the service. On SQLite the lock is tried.

    Raises:
        LockStuckError: Somebody has held it for patience_s without going on.
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


def read_size(session: Session) -> int:
    """Return how many entries the log has."""
    last = session.connection().execute(columns(func.max(col(LogEntry.index)))).scalar_one()
    return 0 if last is None else int(last) + 1


def read_leaves(session: Session, start: int, end: int) -> list[bytes]:
    """Return the leaves [start, end), in order.

    Raises:
        LogDamagedError: One of them is missing.
    """
    query = (
        columns(col(LogEntry.leaf))
        .where(col(LogEntry.index) >= start, col(LogEntry.index) < end)
        .order_by(col(LogEntry.index))
    )
    leaves = list(session.connection().execute(query).scalars())
    if len(leaves) != end - start:
        raise LogDamagedError("the log lacks an entry: run `lethe log fsck`")
    return leaves


def read_entries(session: Session, start: int, end: int) -> dict[int, EntryRow]:
    """Return the entries [start, end) by their index, those that are stored."""
    query = _ENTRIES.where(col(LogEntry.index) >= start, col(LogEntry.index) < end)
    return {
        index: EntryRow(index, leaf, kind, event, ref, day, mac)
        for index, leaf, kind, event, ref, day, mac in session.connection().execute(query)
    }


def read_nodes(
    session: Session, keys: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], bytes]:
    """Return the hashes of nodes by (level, index), those that are stored.

    One statement for any number of keys, O(log size) for each.
    """
    connection = session.connection()
    if connection.dialect.name == "sqlite":
        wanted = bulk.Statement(_NODES_ON_SQLITE, [(json.dumps(keys),)])
    else:
        kinds = bulk.types(LogNode, level="level", at="index")
        wanted = bulk.over(connection.dialect, _NODES, kinds, keys)
    return {(level, at): bytes(value) for level, at, value in bulk.run(connection, wanted)[0]}


def read_row(session: Session, level: int, start: int, count: int) -> list[bytes]:
    """Return `count` neighbouring nodes of one level, from index `start` on.

    Raises:
        LogDamagedError: One of them is missing.
    """
    query = (
        columns(col(LogNode.hash))
        .where(
            col(LogNode.level) == level,
            col(LogNode.index) >= start,
            col(LogNode.index) < start + count,
        )
        .order_by(col(LogNode.index))
    )
    hashes = list(session.connection().execute(query).scalars())
    if len(hashes) != count:
        raise LogDamagedError(f"a node of level {level} is missing: run `lethe log fsck`")
    return hashes


def insertion_of_entries(session: Session, entries: Sequence[EntryRow]) -> bulk.Statement:
    """Return the insertion of rows of entries."""
    dialect = session.get_bind().dialect
    return bulk.insert(
        dialect,
        LogEntry,
        [{name: getattr(entry, name) for name in EntryRow.__slots__} for entry in entries],
    )


def insertion_of_nodes(
    session: Session, nodes: Iterable[tuple[int, int, bytes]]
) -> bulk.Statement:
    """Return the insertion of rows of nodes."""
    rows = [{"level": level, "index": index, "hash": value} for level, index, value in nodes]
    return bulk.insert(session.get_bind().dialect, LogNode, rows)


def latest_checkpoint(session: Session) -> LogCheckpoint | None:
    """Return the stored checkpoint of the largest size, None where no log was begun."""
    found = session.connection().execute(_LATEST).first()
    return None if found is None else LogCheckpoint(**found._mapping)


def covering_checkpoint(session: Session, index: int) -> LogCheckpoint | None:
    """Return the smallest stored checkpoint over entry `index`, None if none is signed yet.

    Sizes are stored in growing order only, so the answer never changes once there is one.
    """
    covering = select(LogCheckpoint).where(col(LogCheckpoint.size) > index)
    return session.exec(covering.order_by(col(LogCheckpoint.size)).limit(1)).first()


class NodeCache:
    """The nodes that proofs read last, of any number of threads.

    Nodes never change. Every proof reads nodes near the root, so these stay.
    """

    def __init__(self, most: int = CACHED) -> None:
        self._most = most
        self._lock = Lock()
        self._known: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    def find(self, keys: Iterable[tuple[int, int]]) -> dict[tuple[int, int], bytes]:
        """Return those that it has."""
        found = {}
        with self._lock:
            for key in keys:
                if (value := self._known.get(key)) is not None:
                    self._known.move_to_end(key)
                    found[key] = value
        return found

    def add(self, nodes: Mapping[tuple[int, int], bytes]) -> None:
        """Take nodes that were read, in place of those that were used least recently."""
        with self._lock:
            self._known |= nodes
            while len(self._known) > self._most:
                self._known.popitem(last=False)


def selection_of_covering(dialect: Dialect, index: int) -> bulk.Statement:
    """Return what reads size, root and note of `covering_checkpoint`."""
    return bulk.over(dialect, _COVERING, _INDEX, [(index,)])


_INDEX = bulk.types(LogEntry, index="index")
_COVERING = (
    "SELECT c.size, c.root, c.note FROM {rows} JOIN log_checkpoints c "
    'ON c.size = (SELECT min(n.size) FROM log_checkpoints n WHERE n.size > given."index")'
)


class NodeTable:
    """The stored nodes for tree algorithms, remembering what it has read.

    Nodes never change, so it may outlive the transaction that filled it. cache: of nodes that
    were read before, for proofs; whoever checks what is stored has none.
    """

    def __init__(self, session: Session, cache: NodeCache | None = None) -> None:
        self._session, self._cache = session, cache
        self._known: dict[tuple[int, int], bytes] = {}

    def compute(self, algorithm: Callable[[NodeReader], T]) -> T:
        """Return what `algorithm` returns, with one statement for all nodes it reads.

        Which nodes a tree algorithm reads follows from sizes and never from hashes, so a
        first run on zeros names them. `algorithm` must therefore be a pure function.

        Raises:
            LogDamagedError: A node is not stored.
        """
        wanted: dict[tuple[int, int], None] = {}

        def note(level: int, index: int) -> bytes:
            wanted[level, index] = None
            return bytes(HASH_SIZE)

        algorithm(note)
        if self._cache is not None:
            self._known |= self._cache.find(wanted)
        if missing := [key for key in wanted if key not in self._known]:
            found = read_nodes(self._session, missing)
            self._known |= found
            if self._cache is not None:
                self._cache.add(found)
        return algorithm(self._read)

    def root_at(self, size: int) -> bytes:
        """Return the root of the first `size` entries. Raises LogDamagedError."""
        return self.compute(lambda read: tree_root(size, read))

    def _read(self, level: int, index: int) -> bytes:
        try:
            return self._known[level, index]
        except KeyError:
            raise LogDamagedError(
                f"node {index} of level {level} is missing: run `lethe log fsck`"
            ) from None


_ENTRIES = columns(
    col(LogEntry.index),
    col(LogEntry.leaf),
    col(LogEntry.kind),
    col(LogEntry.event),
    col(LogEntry.ref),
    col(LogEntry.day),
    col(LogEntry.mac),
)
_LATEST = (
    columns(
        col(LogCheckpoint.size),
        col(LogCheckpoint.root),
        col(LogCheckpoint.note),
        col(LogCheckpoint.signed_at),
    )
    .order_by(col(LogCheckpoint.size).desc())
    .limit(1)
)
_NODES = (
    f'SELECT node.level, node."index", node.hash FROM {bulk.ROWS} '  # noqa: S608
    'JOIN log_nodes AS node ON node.level = given.level AND node."index" = given.at'
)
# SQLite looks through the whole table for a pair IN a list: 0.2 s among two million nodes.
_NODES_ON_SQLITE = (
    'SELECT node.level, node."index", node.hash FROM json_each(?) AS wanted '
    "CROSS JOIN log_nodes AS node ON node.level = json_extract(wanted.value, '$[0]') "
    "AND node.\"index\" = json_extract(wanted.value, '$[1]')"
)
