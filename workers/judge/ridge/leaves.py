"""The leaves of a retained set, sorted in parts: 72 bytes of memory for each record.

Of millions of records a sort of all at once would hold several copies of them. Those whose
commitments begin with the same byte are sorted apart from the others, each part in its place.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.judge.merkle import KEY, Digests

ROW = np.dtype([("commitment", "u1", 32), ("content", "u1", 32), ("learned", "<i8")])
MANY = 1 << 17  # so many are one part, and so many are divided at a time

Rows = NDArray[Any]  # (n,) ROW


@dataclass(frozen=True, slots=True, eq=False)
class Leaves:
    """What is stored: commitments and contents (n, 32) uint8, in any order.

    learned (n,) int64: the version that each row came with.
    """

    commitments: Digests
    contents: Digests
    learned: NDArray[np.int64]


class LeafSort:
    """Leaves that are added in any order and handed over in that of their commitments."""

    def __init__(self, *parts: Leaves) -> None:
        """Begin with some leaves."""
        self._waiting: list[Leaves] = []
        self._count = 0
        self._parts: list[bytearray] = []
        for leaves in parts:
            self.add(leaves)

    def add(self, leaves: Leaves) -> None:
        """Take more leaves."""
        self._waiting.append(leaves)
        self._count += len(leaves.commitments)
        if self._count > MANY:
            self._divide()

    def parts(self) -> Iterator[Rows]:
        """Yield the leaves, which are not kept here, in parts that ascend and are sorted.

        If there are several, each has the commitments with one first byte.
        """
        if self._parts:
            self._divide()
        elif self._count:
            yield _sorted(self._taken())
        parts, self._parts = self._parts, []
        for part in parts:
            if part:
                yield _sorted(np.frombuffer(part, ROW))

    def _taken(self) -> Rows:
        waiting, self._waiting, self._count = self._waiting, [], 0
        return _rows(waiting)

    def _divide(self) -> None:
        rows = self._taken()
        first = rows["commitment"][:, 0]
        rows = rows[np.argsort(first, kind="stable")]
        ends = np.cumsum(np.bincount(first, minlength=256)).tolist()
        self._parts = self._parts or [bytearray() for _ in ends]
        for part, low, high in zip(self._parts, [0, *ends], ends, strict=False):
            part += rows[low:high].tobytes()


def _rows(leaves: Sequence[Leaves]) -> Rows:
    rows = np.empty(sum(len(one.commitments) for one in leaves), ROW)
    low = 0
    for one in leaves:
        part = rows[low : (low := low + len(one.commitments))]
        part["commitment"], part["content"] = one.commitments, one.contents
        part["learned"] = one.learned
    return rows


def _sorted(rows: Rows) -> Rows:
    keys = np.ascontiguousarray(rows["commitment"]).view(KEY).ravel()
    rows[:] = rows[np.argsort(keys)]
    return rows
