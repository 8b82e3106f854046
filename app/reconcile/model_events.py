"""Log entries of a model or of an open request, from leaves that hash to the signed root.

The columns beside a leaf are for queries of history. Whoever can write the database can change
them, and a leaf, and delete both; so whatever is counted is counted here: all leaves are read
once by each process, the new ones each time, and their root is that of the signing guard, which
lies beside the key. 100,000 entries in SQLite took 1.8 s of a processor at the first look.
"""

import threading
from collections import defaultdict
from collections.abc import Callable
from weakref import WeakKeyDictionary

from sqlmodel import Session

from app.ledger.guard import ForkedError
from app.ledger.peaks import Peaks
from app.ledger.sequencer import Ledger
from app.ledger.storage import read_leaves
from lethe.log.checkpoint import Checkpoint
from lethe.log.entries import ERASURE_EVENT, MODEL_EVENT, Leaf, parse_leaf
from lethe.log.tree import leaf_hash
from models.session import reading

PAGE = 1000  # leaves in memory at once
KIND = f'"kind":"{MODEL_EVENT}"'.encode()  # in canonical JSON, and in no string of it
COUNTED = ("model.", "audit.")  # the events that are kept; contributions are not
REQUEST = f'"kind":"{ERASURE_EVENT}"'.encode()
REF = slice(-39, -3)  # the ref of a request in its leaf, which ends with it and `"}}`
CLOSED = ("certified", "failed", "refused", "withdrawn")  # states after which no job runs
_CLOSING = tuple(f'"event":"request.{end}"'.encode() for end in CLOSED)


class _Read:
    """The entries of models and of open requests up to some size of one log."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.peaks = Peaks()
        self.found: dict[str, list[tuple[int, Leaf]]] = defaultdict(list)
        self.open: dict[bytes, list[tuple[int, bytes]]] = defaultdict(list)  # leaves as stored


_known: WeakKeyDictionary[Ledger, _Read] = WeakKeyDictionary()
_first = threading.Lock()


def model_events(ledger: Ledger, ref: str) -> list[tuple[int, Leaf]]:
    """Return (index, leaf) of the signed entries of a model that are COUNTED, in their order.

    Raises:
        ForkedError: The stored entries are not those that were signed.
        LogDamagedError: One of them is missing.
        GuardError: The guard cannot be read.
    """
    with _first:
        read = _known.setdefault(ledger, _Read())
    with read.lock:
        _read_on(ledger, read)
        return list(read.found.get(ref, ()))


def model_refs(ledger: Ledger) -> list[str]:
    """Return the models that `model_events` knows, sorted. Raises what that raises."""
    with _first:
        read = _known.setdefault(ledger, _Read())
    with read.lock:
        _read_on(ledger, read)
        return sorted(read.found)


def request_events(ledger: Ledger, ref: str) -> list[tuple[int, Leaf]]:
    """Return (index, leaf) of every signed entry of an open request, in their order.

    None of a request that the log has as closed: what is kept in memory is bounded by that.

    Raises:
        ForkedError, LogDamagedError, GuardError: As `model_events`.
    """
    with _first:
        read = _known.setdefault(ledger, _Read())
    with read.lock:
        _read_on(ledger, read)
        found = list(read.open.get(ref.encode(), ()))
    return [(index, parse_leaf(data)) for index, data in found]


def signed_leaves(ledger: Ledger, kept: Callable[[bytes], bool]) -> list[tuple[int, bytes]]:
    """Return (index, leaf as stored) of every signed entry that `kept` says, in their order.

    All leaves are read and hashed, one by one; nothing is remembered between calls.

    Raises:
        ForkedError, LogDamagedError, GuardError: As `model_events`.
    """
    return _hashed(ledger, ledger.guard.read(), Peaks(), kept)


def require_signed(ledger: Ledger) -> None:
    """Return if all stored leaves are those that were signed. Raises as `signed_leaves`."""
    signed_leaves(ledger, lambda _: False)


def _hashed(
    ledger: Ledger, signed: Checkpoint, peaks: Peaks, kept: Callable[[bytes], bool]
) -> list[tuple[int, bytes]]:
    """Extend `peaks` to what was signed, and return what is kept of the leaves on the way."""
    found = []
    with Session(reading(ledger.engine)) as session:
        for begin in range(peaks.size, signed.size, PAGE):
            leaves = read_leaves(session, begin, min(begin + PAGE, signed.size))
            for index, data in enumerate(leaves, begin):
                for _ in peaks.append(leaf_hash(data)):
                    pass  # the nodes are not compared here: the root tells of all leaves
                if kept(data):
                    found.append((index, data))
    if peaks.root() != signed.root:
        raise ForkedError(
            f"the first {signed.size} log entries in the database are not those that were "
            "signed: restore its newest backup, then run `lethe log fsck`"
        )
    return found


def _read_on(ledger: Ledger, read: _Read) -> None:
    signed = ledger.guard.read()  # first: what was signed before a snapshot is within it
    if signed.size < read.peaks.size:  # log and guard were restored: what was read is no more
        read.peaks = Peaks()
        read.found.clear()
        read.open.clear()
    if signed.size == read.peaks.size:
        return
    peaks = read.peaks.copy()
    found = _hashed(ledger, signed, peaks, lambda data: KIND in data or REQUEST in data)
    requests = [(index, data) for index, data in found if REQUEST in data]
    models = [(index, parse_leaf(data)) for index, data in found if KIND in data]
    for index, leaf in models:
        if leaf.ref is not None and leaf.event is not None and leaf.event.startswith(COUNTED):
            read.found[leaf.ref].append((index, leaf))
    for index, data in requests:
        if any(end in data for end in _CLOSING):
            read.open.pop(data[REF], None)
        else:
            read.open[data[REF]].append((index, data))
    read.peaks = peaks
