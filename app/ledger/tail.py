"""What may be signed next: the signed tree, and above it the entries that this log wrote.

Rows above the guard's size are only claims of whoever may write the database. They are believed
one by one, by their MAC, and the tree over them is computed from the leaves: a stored node that
says otherwise is refused as well, or a proof would lead to another leaf than the one checked.
"""

from collections.abc import Iterator, Sequence

from sqlmodel import Session

from app.ledger import storage
from app.ledger.entry_macs import EntryKey
from app.ledger.guard import ForkedError
from app.ledger.peaks import Peaks
from app.ledger.storage import NodeTable
from lethe.log.checkpoint import Checkpoint
from lethe.log.tree import leaf_hash
from models import LogEntry

PAGE = 250  # entries in memory at once; SQLite's oldest limit on variables is 999
REMEDY = (
    "nothing is signed while it is there; see 'Entries that Lethe did not write' in the "
    "operator guide"
)


class Tail:
    """The verified tree of a whole log, in the transaction that read it.

    `signed` is what the guard held. `peaks` is the tree of all entries.
    """

    def __init__(
        self, signed: Checkpoint, base: Peaks, peaks: Peaks, hashes: Sequence[bytes]
    ) -> None:
        self.signed, self.peaks = signed, peaks
        self._base, self._hashes = base, list(hashes)

    def append(self, leaf: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Add an entry and yield the nodes (level, index, hash) that it completes."""
        self._hashes.append(leaf_hash(leaf))
        yield from self.peaks.append(self._hashes[-1])

    def root_at(self, size: int) -> bytes:
        """Return the root at `size`, between what was signed and the whole log.

        Raises:
            ForkedError: It is outside: the guard was changed while the log was locked.
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
    """Verify the entries [signed.size, size) and return the tree of all.

    O(log size) and O(size - signed.size). `nodes` has read those of `signed` already where
    the guard has compared it with the log.

    Raises:
        ForkedError: An entry or node is not one that this installation wrote; the message
            names its index and the remedy.
        LogDamagedError: A node of the signed tree is missing.
    """
    base = nodes.compute(lambda read: Peaks.of(signed.size, read))
    if base.root() != signed.root:
        raise ForkedError(
            "the stored tree is not the one that was signed: run `lethe log fsck`"
        )
    peaks, hashes = base.copy(), list[bytes]()
    for start in range(signed.size, size, PAGE):
        made: dict[tuple[int, int], bytes] = {}
        for entry in _authentic(session, start, min(start + PAGE, size), key):
            hashes.append(leaf_hash(entry.leaf))
            made |= {(level, at): value for level, at, value in peaks.append(hashes[-1])}
        stored = storage.read_nodes(session, list(made))
        for level, at in made:
            if stored.get((level, at)) != made[level, at]:
                raise ForkedError(
                    f"node {at} of level {level} is not that of the {size} entries: {REMEDY}"
                )
    return Tail(signed, base, peaks, hashes)


def _authentic(session: Session, start: int, end: int, key: EntryKey) -> Iterator[LogEntry]:
    entries = storage.read_entries(session, start, end)
    for index in range(start, end):
        if index not in entries:
            raise ForkedError(f"entry {index} of the log is missing: {REMEDY}")
        if not key.is_authentic(entries[index]):
            raise ForkedError(f"entry {index} was not written by this installation: {REMEDY}")
        yield entries[index]


def _extend(peaks: Peaks, value: bytes) -> None:
    for _ in peaks.append(value):
        pass
