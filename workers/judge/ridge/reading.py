"""The retained rows, read once and block by block: everything that the checks need of them.

Each block is released when the next one is read. Only the leaf of a row is kept: commitment,
content and version, 72 bytes.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.judge.base import Judgement
from workers.judge.checks import ODD_INPUT
from workers.judge.merkle import KEY, Digests, table
from workers.judge.ridge.claim import BlockClaim, ExactClaim
from workers.judge.ridge.freivalds import Testing
from workers.judge.ridge.statistics import Recomputed, Recomputing

ROW = np.dtype([("commitment", "u1", 32), ("content", "u1", 32), ("learned", "<i8")])
MANY = 1 << 17  # up to this many are one part; more are split into one part per first byte
STEP = 4096  # minimum number of rows by which the buffer grows

PAD = Struct("64s")
CHUNK = 512  # rows hashed at a time: less than a megabyte, which stays in cache

Rows = NDArray[Any]  # (n,) ROW


@dataclass(frozen=True, slots=True, eq=False)
class Leaves:
    """Stored leaves: commitments and contents (n, 32) uint8, in any order.

    learned (n,) int64: the version that learned each row.
    """

    commitments: Digests
    contents: Digests
    learned: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SortedLeaves:
    """Leaves in ascending order of their commitments, with random access.

    rows: of all parts. places (n,): positions of these leaves among them, in order.
    """

    rows: Rows
    places: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.places)

    def read(self, low: int, high: int) -> tuple[Digests, Digests]:
        """Return commitments and contents of the leaves from `low` to `high` - 1."""
        rows = self.rows[self.places[low:high]]
        return rows["commitment"], rows["content"]

    @property
    def learned(self) -> NDArray[np.int64]:
        """The version that learned each leaf (n,)."""
        found: NDArray[np.int64] = self.rows["learned"][self.places]
        return found


# The leaves of a retained set in the order of their commitments: 80 bytes of memory for each.
#
# They are kept in the order of arrival, and only their positions are sorted: sorting millions
# of leaves themselves would hold several copies of them.
class LeafSort:
    """Leaves that are added in any order and returned in that of their commitments."""

    def __init__(self, *leaves: Leaves) -> None:
        self._rows: Rows = np.empty(0, ROW)
        self._count = 0
        for some in leaves:
            self.add(some)

    def add(self, leaves: Leaves) -> None:
        """Add leaves. Raises ValueError if a part of one is missing."""
        count = len(leaves.commitments)
        shapes = {leaves.commitments.shape, leaves.contents.shape}
        if shapes != {(count, 32)} or leaves.learned.shape != (count,):
            # Assignment would broadcast a single one.
            raise ValueError("a leaf has 32 bytes, a content of 32 bytes and a version")
        low, self._count = self._count, self._count + count
        if self._count > (room := len(self._rows)):
            # The system moves a large buffer without a copy.
            self._rows.resize(max(self._count, room + max(STEP, room // 16)), refcheck=False)
        rows = self._rows[low : self._count]
        rows["commitment"], rows["content"] = leaves.commitments, leaves.contents
        rows["learned"] = leaves.learned

    def parts(self) -> Iterator[SortedLeaves]:
        """Yield the leaves in ascending sorted parts, and keep none.

        If there are several parts, each has the commitments with one first byte.
        """
        rows, self._rows = self._rows[: self._count], np.empty(0, ROW)
        self._count = 0
        if not len(rows):
            return
        if len(rows) <= MANY:
            yield _sorted(rows, np.arange(len(rows)))
            return
        first = rows["commitment"][:, 0]
        places = np.argsort(first, kind="stable")
        ends = np.cumsum(np.bincount(first, minlength=256)).tolist()
        for low, high in zip([0, *ends], ends, strict=False):
            if low < high:
                yield _sorted(rows, places[low:high])


def _sorted(rows: Rows, places: NDArray[np.int64]) -> SortedLeaves:
    keys = np.ascontiguousarray(rows["commitment"][places]).view(KEY).ravel()
    return SortedLeaves(rows, places[np.argsort(keys)])


Vouched = tuple[Judgement, Recomputed | None]


def leaves_of(block: BlockClaim) -> Leaves:
    """Return the leaves of stored rows. Raises ValueError for a row with missing parts."""
    count = len(block.rows)
    if {block.salts.shape, block.id_salts.shape} != {(count, 32)}:
        raise ValueError("a row without a salt")
    if block.learned.shape != (count,) or len(block.records) != count:
        raise ValueError("a row without a record or a version")
    records = [record.encode() for record in block.records]
    return Leaves(_commitments(block.id_salts, records), _digests(block), block.learned)


def _commitments(salts: NDArray[np.uint8], records: Sequence[bytes]) -> Digests:
    """Return HMAC-SHA256(salt, record) for each record (RFC 2104), vectorised for speed."""
    found = []
    for first in range(0, len(records), CHUNK):
        key = np.zeros((len(salts[first : first + CHUNK]), 64), np.uint8)
        key[:, :32] = salts[first : first + CHUNK]
        inner, outer = ((key ^ pad).tobytes() for pad in (0x36, 0x5C))
        found += [
            sha256(two + sha256(one + record).digest()).digest()
            for (one,), (two,), record in zip(
                PAD.iter_unpack(inner),
                PAD.iter_unpack(outer),
                records[first : first + CHUNK],
                strict=True,
            )
        ]
    return table(found)


def _digests(block: BlockClaim) -> Digests:
    """Return the digest of each row of a block; its leaf binds it to the commitment."""
    start = sha256(b"lethe/row/v2\0" + _hash(block.client) + _hash(block.subject))
    rows, found = block.rows, []
    for first in range(0, len(rows), CHUNK):
        part = slice(first, first + CHUNK)
        fields = (
            block.salts[part],
            rows.labels[part].astype("<i8").view(np.uint8).reshape(-1, 8),
            rows.codes[part].astype("<i2", order="C").view(np.uint8),
        )
        # In one buffer: a copy of each row would cost as much as its hash.
        for content in np.concatenate(fields, axis=1):
            row = start.copy()
            row.update(content)
            found.append(row.digest())
    return table(found)


def _hash(text: str) -> bytes:
    return sha256(text.encode()).digest()


class Reading:
    """The results of reading a claim's rows; affected results raise for a malformed row.

    rows: their number. stored: those of `wanted`, ids of records, that are among them.
    """

    def __init__(self, claim: ExactClaim, wanted: Collection[str]) -> None:
        """Read all rows. Never raises, whatever a claim may contain."""
        self.rows, self.stored = 0, set[str]()
        self._wanted = frozenset(wanted)
        self._leaves = LeafSort()
        self._test: Recomputing | Testing | None = None
        self._vouched: Vouched | None = None
        self._errors: dict[str, Exception] = {}
        with ExitStack() as stack:
            if claim.masked is None and claim.messages is None:
                self._try("statistics", lambda: self._begin(claim, stack))
            try:
                for block in claim.rows:
                    self._take(block)
            except ODD_INPUT as error:
                self._errors = {"leaves": error, "statistics": error}
            self._try("statistics", self._end)

    def statistics(self) -> Vouched:
        """Return check 1 of rows, and the statistics that it verified."""
        if "statistics" in self._errors:
            raise self._errors["statistics"]
        assert self._vouched is not None
        return self._vouched

    def leaves(self) -> LeafSort:
        """Return the leaves of all rows, and keep none."""
        if "leaves" in self._errors:
            raise self._errors["leaves"]
        leaves, self._leaves = self._leaves, LeafSort()
        return leaves

    def _begin(self, claim: ExactClaim, stack: ExitStack) -> None:
        if claim.ridge.mode == "freivalds":
            self._test = stack.enter_context(Testing(claim.ridge))
        else:
            self._test = Recomputing(claim.ridge)

    def _take(self, block: BlockClaim) -> None:
        rows, test = block.rows, self._test
        self.rows += len(rows)
        self.stored |= self._wanted.intersection(block.records)
        if test is not None:
            self._try("statistics", lambda: test.take(rows))
        self._try("leaves", lambda: self._leaves.add(leaves_of(block)))

    def _end(self) -> None:
        if self._test is not None:
            self._vouched = self._test.judge()

    def _try(self, part: str, run: Callable[[], None]) -> None:
        """Call `run` unless this part has failed: a bad row must not affect other checks."""
        if part not in self._errors:
            try:
                run()
            except ODD_INPUT as error:
                self._errors[part] = error
