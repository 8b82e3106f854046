"""Log entries of a model, a key or an open request, from leaves that hash to the signed root.

The columns beside a leaf are for queries of history. Whoever can write the database can change
them, and a leaf, and delete both; so whatever is counted is counted here: all leaves are read
once by each process, the new ones each time, and their root is that of the signing guard, which
lies beside the key. 100,000 entries in SQLite took 1.8 s of a processor at the first look.

A worker lives for months and a model may have any number of versions, so a process keeps
digests of pages of a model's entries (`app.reconcile.paged`), of requests the open ones, and
the few entries of each key.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from sqlmodel import Session

from app.ledger.guard import ForkedError
from app.ledger.sequencer import Ledger
from app.ledger.storage import read_leaves
from app.reconcile.paged import ModelEvents, PageCache, Pages
from lethe.log.checkpoint import Checkpoint
from lethe.log.entries import (
    ERASURE_EVENT,
    HOLD_EVENT,
    KEY_EVENT,
    MASTER_KEY_EVENT,
    MODEL_EVENT,
    SERVICE_KEY_EVENT,
    Leaf,
    parse_leaf,
)
from lethe.log.peaks import Peaks
from lethe.log.proofs import check_inclusion
from lethe.log.tree import leaf_hash
from models.database.session import reading
from models.erasure_request import ENDED

PAGE = 1000  # leaves in memory at once
KIND = f'"kind":"{MODEL_EVENT}"'.encode()  # in canonical JSON, and in no string of it
REQUEST = f'"kind":"{ERASURE_EVENT}"'.encode()
KEY = f'"kind":"{KEY_EVENT}"'.encode()
SERVICE_KEY = f'"kind":"{SERVICE_KEY_EVENT}"'.encode()
MASTER_KEY = f'"kind":"{MASTER_KEY_EVENT}"'.encode()
HOLD = f'"kind":"{HOLD_EVENT}"'.encode()
REF = slice(-39, -3)  # the ref of a request, key or hold: its leaf ends with it and `"}}`
AUDITS = "audit."  # the events of method audits
CLOSED = ENDED
_CLOSING = tuple(f'"event":"request.{end}"'.encode() for end in CLOSED)


class _Read:
    """The entries of models and of open requests up to some size of one log."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.cache = PageCache()
        self.forget()

    def forget(self) -> None:
        """Begin again, at the first entry."""
        self.peaks = Peaks()
        self.found: dict[str, Pages] = {}  # by model
        self.open: dict[bytes, list[tuple[int, bytes]]] = {}  # leaves as stored
        self.keys: dict[bytes, list[tuple[int, bytes]]] = {}  # by the ref of a registration
        self.holds: dict[bytes, list[tuple[int, bytes]]] = {}  # by the ref of a legal hold
        self.service_keys: list[tuple[int, bytes]] = []  # leaves on the service's own keys
        self.master_keys: list[tuple[int, bytes]] = []  # and on its master keys


class _New:
    """What is read on top of a `_Read`: part of it once the root is the one that was signed."""

    def __init__(self, read: _Read) -> None:
        self._read = read
        self._found: dict[str, Pages] = {}
        self._open: dict[bytes, list[tuple[int, bytes]] | None] = {}  # None: closed since
        self._keys: list[tuple[int, bytes]] = []
        self._holds: list[tuple[int, bytes]] = []
        self._service_keys: list[tuple[int, bytes]] = []
        self._master_keys: list[tuple[int, bytes]] = []

    def see(self, index: int, data: bytes) -> None:
        """Take one leaf into account."""
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
        """Make it part of what was read."""
        self._read.found.update(self._found)
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

    def _see_request(self, index: int, data: bytes) -> None:
        ref = data[REF]
        if any(end in data for end in _CLOSING):
            if ref in self._read.open:
                self._open[ref] = None
            else:  # opened and closed since: nothing is kept of it
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
    """Return (index, leaf) of the signed entries of a model in their order, read as needed.

    event: of this event alone, or with a dot at its end of all that begin so ("audit.").
    Contributions are left out. Iteration and indexing raise what this raises.

    Raises:
        ForkedError: The stored entries are not those that were signed.
        LogDamagedError: One of them is missing.
        GuardError: The guard cannot be read.
    """
    with _up_to_date(ledger) as read:
        pages = read.found[ref].of(event) if ref in read.found else ()
    return ModelEvents(ledger.engine, read.cache, ref, event, pages)


def model_refs(ledger: Ledger) -> list[str]:
    """Return the models that `model_events` knows, sorted. Raises what that raises."""
    with _up_to_date(ledger) as read:
        return sorted(ref for ref, pages in read.found.items() if pages.of(""))


@dataclass(frozen=True, slots=True)
class ServiceKeyEvents:
    """Signed entries on keys of the service among the log's first `size`, with their root."""

    entries: tuple[tuple[int, bytes], ...]
    size: int
    root: bytes


def service_key_events(ledger: Ledger) -> ServiceKeyEvents:
    """Return the signed entries on the service's own keys. Raises as `model_events`."""
    with _up_to_date(ledger) as read:
        return ServiceKeyEvents(tuple(read.service_keys), read.peaks.size, read.peaks.root())


def master_key_events(ledger: Ledger) -> ServiceKeyEvents:
    """Return the signed entries on the service's master keys. Raises as `model_events`."""
    with _up_to_date(ledger) as read:
        return ServiceKeyEvents(tuple(read.master_keys), read.peaks.size, read.peaks.root())


def request_events(ledger: Ledger, ref: str) -> list[tuple[int, Leaf]]:
    """Return (index, leaf) of every signed entry of an open request, in their order.

    None of a request that the log has as closed: what is kept in memory is bounded by that.

    Raises:
        ForkedError, LogDamagedError, GuardError: As `model_events`.
    """
    return requests_events(ledger, [ref])[ref]


def requests_events(ledger: Ledger, refs: Sequence[str]) -> dict[str, list[tuple[int, Leaf]]]:
    """Return what `request_events` returns of each of some requests, by its ref."""
    with _up_to_date(ledger) as read:
        found = {ref: list(read.open.get(ref.encode(), ())) for ref in refs}
    return {
        ref: [(index, parse_leaf(data)) for index, data in entries]
        for ref, entries in found.items()
    }


def key_events(ledger: Ledger, refs: Iterable[str]) -> dict[str, list[tuple[int, Leaf]]]:
    """Return (index, leaf) of every signed entry of some registrations of keys, by their ref.

    Raises:
        ForkedError, LogDamagedError, GuardError: As `model_events`.
    """
    with _up_to_date(ledger) as read:
        found = {ref: list(read.keys.get(ref.encode(), ())) for ref in refs}
    return {
        ref: [(index, parse_leaf(data)) for index, data in entries]
        for ref, entries in found.items()
    }


def hold_events(ledger: Ledger) -> dict[str, list[tuple[int, Leaf]]]:
    """Return (index, leaf) of every signed entry of each legal hold, by its ref.

    Raises:
        ForkedError, LogDamagedError, GuardError: As `model_events`.
    """
    with _up_to_date(ledger) as read:
        found = {ref: list(entries) for ref, entries in read.holds.items()}
    return {
        ref.decode(): [(index, parse_leaf(data)) for index, data in entries]
        for ref, entries in found.items()
    }


def signed_leaves(ledger: Ledger, kept: Callable[[bytes], bool]) -> list[tuple[int, bytes]]:
    """Return (index, leaf as stored) of every signed entry that `kept` says, in their order.

    All leaves are read and hashed, one by one; nothing is remembered between calls.

    Raises:
        ForkedError, LogDamagedError, GuardError: As `model_events`.
    """
    found = []

    def see(index: int, data: bytes) -> None:
        if kept(data):
            found.append((index, data))

    _hash(ledger, ledger.remembered(), Peaks(), see)
    return found


def signed_leaf(ledger: Ledger, index: int) -> Leaf:
    """Return the entry at an index, proven to be in a tree that was signed.

    Raises:
        ProofError: There is no such entry, or the stored one is not the one that was signed.
        EntryError: It is none of the log's.
        UnpublishedError: No checkpoint covers it yet.
        NoteError, LogDamagedError: A checkpoint or an entry was changed or is missing.
    """
    entry = ledger.receipt(index)
    signed = ledger.open(entry.checkpoint)
    check_inclusion(index, signed.size, leaf_hash(entry.leaf), entry.hashes, signed.root)
    return parse_leaf(entry.leaf)


def require_signed(ledger: Ledger) -> None:
    """Return if all stored leaves are those that were signed. Raises as `signed_leaves`."""
    signed_leaves(ledger, lambda _: False)


def _hash(
    ledger: Ledger, signed: Checkpoint, peaks: Peaks, see: Callable[[int, bytes], None]
) -> None:
    """Extend `peaks` to what was signed and show each leaf on the way to `see`.

    What was seen is worth something only when this returns.
    """
    with Session(reading(ledger.engine)) as session:
        for begin in range(peaks.size, signed.size, PAGE):
            leaves = read_leaves(session, begin, min(begin + PAGE, signed.size))
            for index, data in enumerate(leaves, begin):
                for _ in peaks.append(leaf_hash(data)):
                    pass  # the nodes are not compared here: the root tells of all leaves
                see(index, data)
    if peaks.root() != signed.root:
        raise ForkedError(
            f"the first {signed.size} log entries in the database are not those that were "
            "signed: restore its newest backup, then run `lethe log fsck`"
        )


@contextmanager
def _up_to_date(ledger: Ledger) -> Iterator[_Read]:
    """Hold what was read of a log, once it has all that is signed."""
    with _first:
        read = _known.setdefault(ledger, _Read())
    with read.lock:
        _read_on(ledger, read)
        yield read


def _read_on(ledger: Ledger, read: _Read) -> None:
    signed = ledger.remembered()  # first: what was signed before a snapshot is within it
    if signed.size < read.peaks.size:  # log and guard were restored: what was read is no more
        read.forget()
    if signed.size == read.peaks.size:
        return
    peaks, new = read.peaks.copy(), _New(read)
    _hash(ledger, signed, peaks, new.see)
    new.commit(peaks)
