"""What the log says of a model: every entry, from leaves that hash to what was signed.

The columns beside a leaf are for queries of history. Whoever can write the database can change
them, and a leaf, and delete both; so whatever is counted is counted here: all leaves are read
once by each process, the new ones each time, and their root is that of the signing guard, which
lies beside the key. 100,000 entries in SQLite took 1.8 s of a processor at the first look.
"""

import threading
from collections import defaultdict
from weakref import WeakKeyDictionary

from sqlmodel import Session

from app.ledger.entries import MODEL_EVENT, Leaf, parse_leaf
from app.ledger.guard import ForkedError
from app.ledger.peaks import Peaks
from app.ledger.sequencer import Ledger
from app.ledger.storage import read_leaves
from app.ledger.tree import leaf_hash
from models.session import reading

PAGE = 1000  # leaves in memory at once
KIND = f'"kind":"{MODEL_EVENT}"'.encode()  # in canonical JSON, and in no string of it
COUNTED = "model."  # the events that are kept; contributions and audits are not


class _Read:
    """The entries of models up to some size of one log."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.peaks = Peaks()
        self.found: dict[str, list[tuple[int, Leaf]]] = defaultdict(list)


_known: WeakKeyDictionary[Ledger, _Read] = WeakKeyDictionary()
_first = threading.Lock()


def model_events(ledger: Ledger, ref: str) -> list[tuple[int, Leaf]]:
    """Return (index, leaf) of every signed entry `model.*` of a model, in their order.

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


def _read_on(ledger: Ledger, read: _Read) -> None:
    signed = ledger.guard.read()  # first: what was signed before a snapshot is within it
    if signed.size < read.peaks.size:  # log and guard were restored: what was read is no more
        read.peaks = Peaks()
        read.found.clear()
    size, start = signed.size, read.peaks.size
    if size == start:
        return
    peaks, found = read.peaks.copy(), []
    with Session(reading(ledger.engine)) as session:
        for begin in range(start, size, PAGE):
            leaves = read_leaves(session, begin, min(begin + PAGE, size))
            for index, data in enumerate(leaves, begin):
                for _ in peaks.append(leaf_hash(data)):
                    pass  # the nodes are not compared here: the root tells of all leaves
                if KIND in data:
                    found.append((index, data))
    if peaks.root() != signed.root:
        raise ForkedError(
            f"the first {size} log entries in the database are not those that were signed: "
            "restore its newest backup, then run `lethe log fsck`"
        )
    for index, leaf in [(index, parse_leaf(data)) for index, data in found]:
        if leaf.ref is not None and leaf.event is not None and leaf.event.startswith(COUNTED):
            read.found[leaf.ref].append((index, leaf))
    read.peaks = peaks
