"""A writer transaction, and the verified tree that it extends.

A transaction collects entries and rows and writes them with the commit. A tail is the tree that
may be signed next: the signed tree and the authentic entries above it. Anyone with write access
to the database may have written the rows above the guard's size. Each is accepted only by its
MAC, and the tree over them is computed from the leaves. A stored node that differs is refused
as well: a proof would otherwise lead to a leaf that was not checked.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, SQLModel

from app.ledger import storage
from app.ledger.entry_macs import EntryKey, EntryRow
from app.ledger.guard import ForkedError
from app.ledger.lock import MOST_ABOVE, Above, LogState
from app.ledger.receipt import Appended
from app.ledger.storage import NodeTable
from app.steps import reached
from lethe.log.checkpoint import Checkpoint
from lethe.log.entries import Leaf
from lethe.log.tree import Peaks, leaf_hash
from models.database import bulk
from models.database.bulk import Rows, Statement
from models.database.types import BEGAN

PAGE = 250  # entries in memory at once; old SQLite allows 999 variables in a statement
REMEDY = (
    "nothing is signed while it is there; see 'Entries that Lethe did not write' in "
    "docs/troubleshooting.md"
)


class Tail:
    """The verified tree of a whole log.

    `signed` is the guard's checkpoint. `peaks` is the tree of all entries, `mac` the last
    entry's, None if there is none. `nodes` prove every entry above `signed` in every tree up to
    this one.
    """

    def __init__(self, signed: Checkpoint, base: Peaks, mac: bytes | None) -> None:
        self.signed, self.peaks, self.mac = signed, base.copy(), mac
        self.nodes = base.nodes()
        self._base, self._hashes = base, list[bytes]()

    def copy(self) -> "Tail":
        """Return a copy that can be extended without changing this tree."""
        other = Tail(self.signed, self._base, self.mac)
        other.peaks, other.nodes = self.peaks.copy(), dict(self.nodes)
        other._hashes = list(self._hashes)
        return other

    def append(self, leaf: bytes, mac: bytes) -> list[tuple[int, int, bytes]]:
        """Add an entry and return the nodes (level, index, hash) that it completes."""
        self.mac = mac
        self._hashes.append(leaf_hash(leaf))
        completed = list(self.peaks.append(self._hashes[-1]))
        self.nodes |= {(level, at): value for level, at, value in completed}
        return completed

    def published(self, checkpoint: Checkpoint) -> "Tail":
        """Return the same tree, signed by a checkpoint over all its entries."""
        assert checkpoint.size == self.peaks.size
        return Tail(checkpoint, self.peaks, self.mac)

    def root_at(self, size: int) -> bytes:
        """Return the root at `size`, between the signed size and that of the whole log.

        Raises ForkedError: `size` is outside: the guard changed while the log was locked.
        """
        if not self._base.size <= size <= self._base.size + len(self._hashes):
            raise ForkedError(
                "another log was signed with this key meanwhile: restore the keys directory "
                "that belongs to this database"
            )
        peaks = self._base.copy()
        for value in self._hashes[: size - self._base.size]:
            _extend(peaks, value)
        return peaks.root()


def read_tail(
    session: Session, nodes: NodeTable, signed: Checkpoint, size: int, key: EntryKey
) -> Tail:
    """Verify the entries [signed.size, size) and return the tree of all entries.

    Takes O(log size + (size - signed.size)). `nodes` already has the nodes of `signed` if the
    guard was compared with the log.

    Raises:
        ForkedError: This installation did not write an entry or node; the message names its
            index and the remedy.
        LogDamagedError: A node of the signed tree is missing.
    """
    base = nodes.compute(lambda read: Peaks.of(signed.size, read))
    if base.root() != signed.root:
        raise ForkedError(
            "the stored tree is not the one that was signed: run `lethe log fsck`"
        )
    before = storage.read_entries(session, signed.size - 1, signed.size)
    mac = bytes(before[signed.size - 1].mac) if before else None
    tail = Tail(signed, base, mac)
    read_on(session, tail, size, key)
    return tail


def read_on(
    session: Session, tail: Tail, size: int, key: EntryKey, above: Above | None = None
) -> None:
    """Verify the entries above `tail`, up to `size`, and add them to it.

    above: entries and nodes above `tail` that were read already.

    Raises ForkedError: as `read_tail`.
    """
    if above is not None and above.size == tail.peaks.size and size <= above.size + MOST_ABOVE:
        completed = _add(tail, above.entries, size, key)
        _compare(completed, above.nodes, size)
        return
    for start in range(tail.peaks.size, size, PAGE):
        end = min(start + PAGE, size)
        completed = _add(tail, storage.read_entries(session, start, end), end, key)
        _compare(completed, storage.read_nodes(session, list(completed)), size)


def _add(
    tail: Tail, entries: Mapping[int, EntryRow], end: int, key: EntryKey
) -> dict[tuple[int, int], bytes]:
    """Check and add the entries up to `end`; return the nodes that they complete."""
    made: dict[tuple[int, int], bytes] = {}
    for index in range(tail.peaks.size, end):
        if index not in entries:
            raise ForkedError(f"entry {index} of the log is missing: {REMEDY}")
        entry = entries[index]
        if not key.is_authentic(entry):
            raise ForkedError(f"entry {index} was not written by this installation: {REMEDY}")
        completed = tail.append(bytes(entry.leaf), bytes(entry.mac))
        made |= {(level, at): value for level, at, value in completed}
    return made


def _compare(
    made: Mapping[tuple[int, int], bytes], stored: Mapping[tuple[int, int], bytes], size: int
) -> None:
    for level, at in made:
        if stored.get((level, at)) != made[level, at]:
            raise ForkedError(
                f"node {at} of level {level} is not that of the {size} entries: {REMEDY}"
            )


def _extend(peaks: Peaks, value: bytes) -> None:
    for _ in peaks.append(value):
        pass


class Transaction:
    """A writer transaction under the log's lock; `now` is the database's time at its start.

    answers: the rows of the statements that ran when it began.
    """

    def __init__(self, session: Session, tail: Tail, key: EntryKey, state: LogState) -> None:
        self.session, self.now, self.answers = session, state.now, state.answers
        session.info[BEGAN] = state.now  # saves those who have only the session a query
        self._tail, self._key = tail, key
        self._entries: list[EntryRow] = []
        self._writes: list[Statement] = []
        self._rows: dict[tuple[type[SQLModel], tuple[str, ...]], list[dict[str, Any]]] = {}

    @property
    def next_index(self) -> int:
        """The index of the entry that is appended next."""
        return self._tail.peaks.size + len(self._entries)

    def append(self, leaf: bytes, said: Leaf | None = None) -> int:
        """Append an entry and return its log index.

        The index is final if the transaction commits. The rows are written just before the
        commit, so a query inside the transaction does not see them. said: the parsed leaf, if
        the caller has just formatted it.

        Raises EntryError: not an entry of a kind this log holds.
        """
        index = self.next_index
        self._entries.append(self._key.row(index, leaf, self.now.date(), said))
        return index

    def write(self, *statements: Statement) -> None:
        """Queue statements to run just before the commit, in order.

        They share one round trip with the entries. `flush` runs them at once.
        """
        self._writes += statements

    def insert(self, model: type[SQLModel], row: dict[str, Any]) -> None:
        """Queue a row for insertion just before the commit, with all others of its columns.

        Rows that it refers to must be in the session by then; the session does not know it.
        """
        self._rows.setdefault((model, tuple(row)), []).append(row)

    def read(self, statements: Sequence[Statement]) -> Rows:
        """Flush queued writes, then return the rows of each statement."""
        self.flush()
        return bulk.run(self.session.connection(), *statements) if statements else []

    def flush(self) -> None:
        """Run the statements queued by `write` and `insert`."""
        if writes := self._take_writes():
            bulk.run(self.session.connection(), *writes)

    def _take_writes(self) -> list[Statement]:
        if self._rows:
            self.session.flush()  # rows that the inserted rows refer to
            dialect = self.session.get_bind().dialect
            rows, self._rows = self._rows, {}
            self.write(*(bulk.insert(dialect, kind, own) for (kind, _), own in rows.items()))
        writes, self._writes = self._writes, []
        return writes

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Roll back the block's rows and entries if it raises, and re-raise."""
        self.flush()
        mark = len(self._entries)
        try:
            with self.session.begin_nested():
                self.session.connection()  # a session sends SAVEPOINT no earlier than this
                yield
                self.flush()
        except BaseException:
            del self._entries[mark:]
            self._writes.clear()
            self._rows.clear()
            raise

    def commit(self) -> Appended | None:
        """Write the appended entries and the nodes they complete, and commit.

        Returns the entries, None if there are none. The remaining writes and the commit are
        one message. Raises ForkedError: rows that no append wrote are in the entries' place.
        """
        self.session.flush()
        writes = self._take_writes()
        if not self._entries:
            self._run_and_commit(writes)
            return None
        start = self._tail.peaks.size
        nodes = [node for row in self._entries for node in self._tail.append(row.leaf, row.mac)]
        writes.append(storage.insertion_of_entries(self.session, self._entries))
        writes.append(storage.insertion_of_nodes(self.session, nodes))
        reached("ledger.appended")
        try:
            self._run_and_commit(writes)
        except IntegrityError as error:
            if not any(table in str(error.orig) for table in ("log_entries", "log_nodes")):
                raise  # from the effect's own writes
            raise ForkedError(
                f"rows that no append wrote lie at or above entry {start}: {REMEDY}"
            ) from None
        return Appended(start, tuple(row.leaf for row in self._entries))

    def _run_and_commit(self, writes: Sequence[Statement]) -> None:
        if writes:
            # The erasure journal must be durable before the commit, so its hook runs here.
            # `Session.commit` runs it again, too late, with nothing left to write.
            self.session.dispatch.before_commit(self.session)
            bulk.commit(self.session.connection(), *writes)
        self.session.commit()
