"""Log entries of a model, a key or an open request, from leaves that hash to the signed root.

The columns beside a leaf are for queries of history. Anyone with write access to the database
can change or delete them and the leaf. So everything that matters is read here: each process
reads all leaves once and new leaves as they come, and compares their root with that of the
signing guard, which is beside the key. The first read of 100,000 entries in SQLite took 1.8 s
of CPU time.

A worker runs for months and a model may have any number of versions, so a process keeps only
digests of pages of a model's entries (`app.reconcile.paged`), the entries of open requests, and
the few entries of keys and holds.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from sqlmodel import Session, col, select

from app.ledger.guard import ForkedError
from app.ledger.sequencer import Ledger
from app.ledger.storage import NodeTable, read_leaves
from app.reconcile.paged import ModelEvents, PageCache, Pages
from lethe.log.checkpoint import Checkpoint
from lethe.log.entries import (
    ERASURE_EVENT,
    HOLD_EVENT,
    KEY_EVENT,
    MASTER_KEY_EVENT,
    MODEL_EVENT,
    SERVICE_KEY_EVENT,
    EntryError,
    Leaf,
    parse_leaf,
)
from lethe.log.proofs import ProofError, check_inclusion, inclusion_proof
from lethe.log.tree import Peaks, leaf_hash
from models import LogEntry
from models.database.session import reading, rows_in
from models.erasure_request import ENDED

PAGE = 1000  # leaves in memory at once
KIND = f'"kind":"{MODEL_EVENT}"'.encode()  # canonical JSON; cannot occur inside a string
REQUEST = f'"kind":"{ERASURE_EVENT}"'.encode()
KEY = f'"kind":"{KEY_EVENT}"'.encode()
SERVICE_KEY = f'"kind":"{SERVICE_KEY_EVENT}"'.encode()
MASTER_KEY = f'"kind":"{MASTER_KEY_EVENT}"'.encode()
HOLD = f'"kind":"{HOLD_EVENT}"'.encode()
REF = slice(-39, -3)  # the ref of a request, key or hold; `"}}` follows it in the leaf
Entry = tuple[int, Leaf]  # index and leaf
AUDITS = "audit."  # the events of method audits
ARRIVED, MESSAGE = "round.received", "message"  # the event of a masked input, and its digest
SUMMED, ROUND_FAILED = "round.summed", "round.failed"  # either ends all rounds of a model
CLOSED = ENDED
_CLOSING = tuple(f'"event":"request.{end}"'.encode() for end in CLOSED)


class _Read:
    """The entries of one log that a process keeps, up to some size."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.cache = PageCache()
        self.forget()

    def forget(self) -> None:
        """Start again at the first entry."""
        self.peaks = Peaks()
        self.found: dict[str, Pages] = {}  # by model
        self.arrived: dict[str, frozenset[str]] = {}  # masked inputs since its last round ended
        self.open: dict[bytes, list[tuple[int, bytes]]] = {}  # leaves as stored
        self.keys: dict[bytes, list[tuple[int, bytes]]] = {}  # by the ref of a registration
        self.holds: dict[bytes, list[tuple[int, bytes]]] = {}  # by the ref of a legal hold
        self.service_keys: list[tuple[int, bytes]] = []  # leaves of the service's own keys
        self.master_keys: list[tuple[int, bytes]] = []  # leaves of its master keys


class _New:
    """Newly read entries, to be added to a `_Read` once the root matches the signed one."""

    def __init__(self, read: _Read) -> None:
        self._read = read
        self._found: dict[str, Pages] = {}
        self._arrived: dict[str, frozenset[str]] = {}
        self._open: dict[bytes, list[tuple[int, bytes]] | None] = {}  # None: closed since
        self._keys: list[tuple[int, bytes]] = []
        self._holds: list[tuple[int, bytes]] = []
        self._service_keys: list[tuple[int, bytes]] = []
        self._master_keys: list[tuple[int, bytes]] = []

    def see(self, index: int, data: bytes) -> None:
        """Add one leaf."""
        if KIND in data:
            self._see_model(index, data)
        elif REQUEST in data:
            self._see_request(index, data)
        elif KEY in data:
            self._keys.append((index, data))
        elif HOLD in data:
            self._holds.append((index, data))
        elif SERVICE_KEY in data:
            self._service_keys.append((index, data))
        elif MASTER_KEY in data:
            self._master_keys.append((index, data))

    def commit(self, peaks: Peaks) -> None:
        """Add everything to the `_Read`."""
        self._read.found.update(self._found)
        self._read.arrived.update(self._arrived)
        self._read.service_keys += self._service_keys
        self._read.master_keys += self._master_keys
        for ref, leaves in self._open.items():
            if leaves is None:
                self._read.open.pop(ref, None)
            else:
                self._read.open[ref] = leaves
        for index, data in self._keys:
            self._read.keys.setdefault(data[REF], []).append((index, data))
        for index, data in self._holds:
            self._read.holds.setdefault(data[REF], []).append((index, data))
        self._read.peaks = peaks

    def _see_model(self, index: int, data: bytes) -> None:
        leaf = parse_leaf(data)
        if leaf.ref is None or leaf.event is None:
            return
        if leaf.ref not in self._found:
            before = self._read.found.get(leaf.ref)
            self._found[leaf.ref] = Pages() if before is None else before.copy()
        self._found[leaf.ref].add(index, leaf.event, data)
        if leaf.event == ARRIVED:
            known = self._arrived.get(leaf.ref, self._read.arrived.get(leaf.ref, frozenset()))
            self._arrived[leaf.ref] = known | {leaf.digests[MESSAGE]}
        elif leaf.event in (SUMMED, ROUND_FAILED):
            self._arrived[leaf.ref] = frozenset()

    def _see_request(self, index: int, data: bytes) -> None:
        ref = data[REF]
        if any(end in data for end in _CLOSING):
            if ref in self._read.open:
                self._open[ref] = None
            else:  # opened and closed within this read: keep nothing
                self._open.pop(ref, None)
            return
        leaves = self._open.get(ref)
        if leaves is None:
            known = [] if ref in self._open else self._read.open.get(ref, ())
            leaves = self._open[ref] = list(known)
        leaves.append((index, data))


_known: WeakKeyDictionary[Ledger, _Read] = WeakKeyDictionary()
_first = threading.Lock()


def model_events(ledger: Ledger, ref: str, event: str = "") -> ModelEvents:
    """Return (index, leaf) of a model's signed entries in order, read on demand.

    event: only this event, or, ending in a dot, all events with this prefix ("audit.").
    Contributions are left out. Iteration and indexing raise the same errors.

    Raises:
        ForkedError: The stored entries are not the signed ones.
        LogDamagedError: An entry is missing.
        GuardError: The guard cannot be read.
    """
    with _up_to_date(ledger) as read:
        pages = read.found[ref].of(event) if ref in read.found else ()
    return ModelEvents(ledger.engine, read.cache, ref, event, pages)


def masked_inputs(ledger: Ledger, ref: str) -> frozenset[str]:
    """Return the digests of the masked inputs that a model may still learn.

    Those that the log has as received since the model's last round was summed or failed: hex
    SHA-256 of the messages. Raises as `model_events`.
    """
    with _up_to_date(ledger) as read:
        return read.arrived.get(ref, frozenset())


def model_refs(ledger: Ledger) -> list[str]:
    """Return the refs of the models that have entries, sorted. Raises as `model_events`."""
    with _up_to_date(ledger) as read:
        return sorted(ref for ref, pages in read.found.items() if pages.of(""))


@dataclass(frozen=True, slots=True)
class ServiceKeyEvents:
    """Signed entries of service keys among the log's first `size` entries, and the root."""

    entries: tuple[tuple[int, bytes], ...]
    size: int
    root: bytes


def service_key_events(ledger: Ledger) -> ServiceKeyEvents:
    """Return the signed entries of the service's own keys. Raises as `model_events`."""
    with _up_to_date(ledger) as read:
        return ServiceKeyEvents(tuple(read.service_keys), read.peaks.size, read.peaks.root())


def master_key_events(ledger: Ledger) -> ServiceKeyEvents:
    """Return the signed entries of the service's master keys. Raises as `model_events`."""
    with _up_to_date(ledger) as read:
        return ServiceKeyEvents(tuple(read.master_keys), read.peaks.size, read.peaks.root())


def request_events(ledger: Ledger, ref: str) -> list[tuple[int, Leaf]]:
    """Return (index, leaf) of every signed entry of an open request, in order.

    Returns an empty list for a closed request, which bounds the memory used. Raises
    ForkedError, LogDamagedError or GuardError: As `model_events`.
    """
    return requests_events(ledger, [ref])[ref]


def requests_events(ledger: Ledger, refs: Sequence[str]) -> dict[str, list[tuple[int, Leaf]]]:
    """Return the result of `request_events` for each request, by its ref."""
    with _up_to_date(ledger) as read:
        found = {ref: list(read.open.get(ref.encode(), ())) for ref in refs}
    return _parsed(found)


def key_events(ledger: Ledger, refs: Iterable[str]) -> dict[str, list[tuple[int, Leaf]]]:
    """Return (index, leaf) of every signed entry of some key registrations, by their ref.

    Raises ForkedError, LogDamagedError or GuardError: as `model_events`.
    """
    with _up_to_date(ledger) as read:
        found = {ref: list(read.keys.get(ref.encode(), ())) for ref in refs}
    return _parsed(found)


def hold_events(ledger: Ledger) -> dict[str, list[tuple[int, Leaf]]]:
    """Return (index, leaf) of every signed entry of each legal hold, by its ref.

    Raises ForkedError, LogDamagedError or GuardError: as `model_events`.
    """
    with _up_to_date(ledger) as read:
        found = {ref.decode(): list(entries) for ref, entries in read.holds.items()}
    return _parsed(found)


def _parsed(found: Mapping[str, Sequence[tuple[int, bytes]]]) -> dict[str, list[Entry]]:
    return {
        ref: [(index, parse_leaf(data)) for index, data in entries]
        for ref, entries in found.items()
    }


def signed_leaves(ledger: Ledger, kept: Callable[[bytes], bool]) -> list[tuple[int, bytes]]:
    """Return (index, leaf as stored) of every signed entry that `kept` accepts, in order.

    Every call reads and hashes all leaves. Raises ForkedError, LogDamagedError or GuardError:
    as `model_events`.
    """
    found = []

    def see(index: int, data: bytes) -> None:
        if kept(data):
            found.append((index, data))

    _hash(ledger, ledger.remembered(), Peaks(), see)
    return found


def signed_leaf(ledger: Ledger, index: int) -> Leaf:
    """Return the entry at an index, proven to be in a signed tree.

    Raises:
        ProofError: There is no such entry, or the stored one is not the signed one.
        EntryError: It is not an entry of a kind this log holds.
        UnpublishedError: No checkpoint covers it yet.
        NoteError, LogDamagedError: A checkpoint or an entry was changed or is missing.
    """
    entry = ledger.receipt(index)
    signed = ledger.open(entry.checkpoint)
    check_inclusion(index, signed.size, leaf_hash(entry.leaf), entry.hashes, signed.root)
    return parse_leaf(entry.leaf)


def proven_leaves(ledger: Ledger, indexes: Iterable[int]) -> dict[int, Leaf]:
    """Return those of the entries at these indexes that are in the signed tree.

    The cost is O(log size) for each, however long the log is: for entries of closed requests,
    which no process keeps. Raises GuardError or LogDamagedError: as `model_events`.
    """
    signed = ledger.remembered()
    wanted = sorted({index for index in indexes if 0 <= index < signed.size})
    with Session(reading(ledger.engine)) as session:
        query = select(LogEntry.index, LogEntry.leaf)
        stored = dict(rows_in(session, query, col(LogEntry.index), wanted))
        proofs = NodeTable(session, ledger.nodes).compute(
            lambda read: {index: inclusion_proof(index, signed.size, read) for index in stored}
        )
    found = {}
    for index, data in stored.items():
        with suppress(ProofError, EntryError):  # changed: fsck reports it
            hashed = leaf_hash(data)
            check_inclusion(index, signed.size, hashed, proofs[index], signed.root)
            found[index] = parse_leaf(data)
    return found


def require_signed(ledger: Ledger) -> None:
    """Check that all stored leaves are the signed ones. Raises as `signed_leaves`."""
    signed_leaves(ledger, lambda _: False)


def _hash(
    ledger: Ledger, signed: Checkpoint, peaks: Peaks, see: Callable[[int, bytes], None]
) -> None:
    """Extend `peaks` to the signed size and pass each new leaf to `see`.

    The leaves are verified only once this returns.
    """
    with Session(reading(ledger.engine)) as session:
        for begin in range(peaks.size, signed.size, PAGE):
            leaves = read_leaves(session, begin, min(begin + PAGE, signed.size))
            for index, data in enumerate(leaves, begin):
                for _ in peaks.append(leaf_hash(data)):
                    pass  # the root covers all leaves: nodes need no comparison
                see(index, data)
    if peaks.root() != signed.root:
        raise ForkedError(
            f"the first {signed.size} log entries in the database are not those that were "
            "signed: restore its newest backup, then run `lethe log fsck`"
        )


@contextmanager
def _up_to_date(ledger: Ledger) -> Iterator[_Read]:
    """Lock and yield the entries of a log, after reading all that are signed."""
    with _first:
        read = _known.setdefault(ledger, _Read())
    with read.lock:
        _read_on(ledger, read)
        yield read


def _read_on(ledger: Ledger, read: _Read) -> None:
    signed = ledger.remembered()  # before the snapshot, which then has all signed entries
    if signed.size < read.peaks.size:  # log and guard were restored: the entries are obsolete
        read.forget()
    if signed.size == read.peaks.size:
        return
    peaks, new = read.peaks.copy(), _New(read)
    _hash(ledger, signed, peaks, new.see)
    new.commit(peaks)
