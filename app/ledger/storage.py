"""The log's three tables: entries, nodes, checkpoints. Only SQL here, no decisions."""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import TypeVar

from sqlalchemy import Dialect, func
from sqlalchemy import select as columns
from sqlmodel import Session, col, select

from app.ledger.entry_macs import EntryRow
from lethe.errors import LetheError
from lethe.log.tree import HASH_SIZE, NodeReader, tree_root
from models import LogCheckpoint, LogEntry, LogNode
from models.database import bulk

CACHED = 8_192  # nodes that proofs share in memory, about 3 MB: the top 12 levels and more

T = TypeVar("T")


class LogDamagedError(LetheError):
    """An entry or node of the log is missing from the database."""

    slug, title, status = "log-damaged", "The log is damaged", 503


def read_size(session: Session) -> int:
    """Return the log's number of entries."""
    last = session.connection().execute(columns(func.max(col(LogEntry.index)))).scalar_one()
    return 0 if last is None else int(last) + 1


def read_leaves(session: Session, start: int, end: int) -> list[bytes]:
    """Return the leaves [start, end), in order. Raises LogDamagedError: a leaf is missing."""
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
    """Return those of the entries [start, end) that are stored, by index."""
    query = _ENTRIES.where(col(LogEntry.index) >= start, col(LogEntry.index) < end)
    return {
        index: EntryRow(index, leaf, kind, event, ref, day, mac)
        for index, leaf, kind, event, ref, day, mac in session.connection().execute(query)
    }


def read_nodes(
    session: Session, keys: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], bytes]:
    """Return the hashes of those nodes (level, index) that are stored.

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
    """Return `count` consecutive nodes of one level, from index `start`.

    Raises LogDamagedError: a node is missing.
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
    """Return the statement that inserts entries."""
    dialect = session.get_bind().dialect
    return bulk.insert(
        dialect,
        LogEntry,
        [{name: getattr(entry, name) for name in EntryRow.__slots__} for entry in entries],
    )


def insertion_of_nodes(
    session: Session, nodes: Iterable[tuple[int, int, bytes]]
) -> bulk.Statement:
    """Return the statement that inserts nodes."""
    rows = [{"level": level, "index": index, "hash": value} for level, index, value in nodes]
    return bulk.insert(session.get_bind().dialect, LogNode, rows)


def latest_checkpoint(session: Session) -> LogCheckpoint | None:
    """Return the stored checkpoint of the largest size, None if no log was begun."""
    found = session.connection().execute(_LATEST).first()
    return None if found is None else LogCheckpoint(**found._mapping)


def covering_checkpoint(session: Session, index: int) -> LogCheckpoint | None:
    """Return the smallest stored checkpoint over entry `index`, None if none is signed yet.

    Checkpoints are stored in increasing size, so once there is an answer it never changes.
    """
    covering = select(LogCheckpoint).where(col(LogCheckpoint.size) > index)
    return session.exec(covering.order_by(col(LogCheckpoint.size)).limit(1)).first()


class NodeCache:
    """An LRU cache of the nodes that proofs read, shared by threads.

    Nodes never change. Every proof reads nodes near the root, so those stay cached.
    """

    def __init__(self, most: int = CACHED) -> None:
        self._most = most
        self._lock = Lock()
        self._known: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    def find(self, keys: Iterable[tuple[int, int]]) -> dict[tuple[int, int], bytes]:
        """Return the cached ones of these nodes."""
        found = {}
        with self._lock:
            for key in keys:
                if (value := self._known.get(key)) is not None:
                    self._known.move_to_end(key)
                    found[key] = value
        return found

    def add(self, nodes: Mapping[tuple[int, int], bytes]) -> None:
        """Add nodes and evict the least recently used ones."""
        with self._lock:
            self._known |= nodes
            while len(self._known) > self._most:
                self._known.popitem(last=False)


def selection_of_covering(dialect: Dialect, index: int) -> bulk.Statement:
    """Return the statement that reads size, root and note of `covering_checkpoint`."""
    return bulk.over(dialect, _COVERING, _INDEX, [(index,)])


_INDEX = bulk.types(LogEntry, index="index")
_COVERING = (
    "SELECT c.size, c.root, c.note FROM {rows} JOIN log_checkpoints c "
    'ON c.size = (SELECT min(n.size) FROM log_checkpoints n WHERE n.size > given."index")'
)


class NodeTable:
    """Reads stored nodes for tree algorithms, and remembers them.

    Nodes never change, so a table may outlive the transaction that filled it. cache: shared
    nodes, for proofs; None for checks of what is stored.
    """

    def __init__(self, session: Session, cache: NodeCache | None = None) -> None:
        self._session, self._cache = session, cache
        self._known: dict[tuple[int, int], bytes] = {}

    def compute(self, algorithm: Callable[[NodeReader], T]) -> T:
        """Return the result of `algorithm`, reading all its nodes with one statement.

        The nodes that a tree algorithm reads depend on sizes, never on hashes, so a first run
        on zeros lists them. `algorithm` must therefore be a pure function. Raises
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
# For a pair IN a list, SQLite scans the whole table: 0.2 s for two million nodes.
_NODES_ON_SQLITE = (
    'SELECT node.level, node."index", node.hash FROM json_each(?) AS wanted '
    "CROSS JOIN log_nodes AS node ON node.level = json_extract(wanted.value, '$[0]') "
    "AND node.\"index\" = json_extract(wanted.value, '$[1]')"
)
