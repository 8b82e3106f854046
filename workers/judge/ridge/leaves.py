"""The leaves of a retained set in the order of their commitments: 80 bytes of memory for each.

They are kept in the order of arrival, and only their positions are sorted: sorting millions of
leaves themselves would hold several copies of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.judge.merkle import KEY, Digests

ROW = np.dtype([("commitment", "u1", 32), ("content", "u1", 32), ("learned", "<i8")])
MANY = 1 << 17  # up to this many are one part; more are split into one part per first byte
STEP = 4096  # minimum number of rows by which the buffer grows

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


class LeafSort:
    """Leaves that are added in any order and returned in that of their commitments."""

    def __init__(self, *leaves: Leaves) -> None:
        """Start without leaves."""
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
