"""The tree of a retained set, recomputed from the whole list of its commitments.

    leaf     SHA256(0x00 | TAG | commitment | content)
    inner    SHA256(0x01 | TAG | bit, uint16 | leaves under it, uint64 | left | right)
    empty    SHA256(0x02 | TAG)

An inner node divides its commitments at the first bit in which they differ. Numbers are
big-endian. This shares no code with the publisher of the roots.

The sets in a claim differ in a few records. A subtree without any of them has the same hash in
both, so only the nodes above a removed record are rehashed. Hashes of subtrees of up to SMALL
leaves are not stored: besides the leaves, 64 bytes each, a tree takes about 15 bytes for each
leaf. A large set comes in parts, which read their leaves on demand.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

MISSING = "a leaf to leave out is not in the set"
TAG = b"lethe/retained-set/v2\0"
EMPTY = sha256(b"\x02" + TAG).digest()
NO_CONTENT = bytes(32)
LEAF, INNER = b"\x00" + TAG, b"\x01" + TAG
SMALL = 64  # hashing this many leaves again takes 0.2 ms
CHUNK = 4096  # leaves hashed at a time
KEY = "S32"  # compared as bytes; "S" drops trailing zeros, which is harmless at equal lengths
_NUMBERS = struct.Struct(">HQ")

NONE: frozenset[int] = frozenset()
Digests = NDArray[np.uint8]  # (n, 32)


class Readable(Protocol):
    """Leaves in ascending order, with random access."""

    def __len__(self) -> int:
        """Return the number of leaves."""

    def read(self, low: int, high: int) -> tuple[Digests, Digests]:
        """Return commitments and contents (m, 32) of the leaves from `low` to `high` - 1."""


@dataclass(frozen=True, slots=True, eq=False)
class _Arrays:
    leaves: Digests
    contents: Digests

    def __len__(self) -> int:
        return len(self.leaves)

    def read(self, low: int, high: int) -> tuple[Digests, Digests]:
        return self.leaves[low:high], self.contents[low:high]


@dataclass(frozen=True, slots=True)
class Subtree:
    """A subtree with the leaves at `low` to `high` - 1 except those in `gone`.

    left and right: None for one with few leaves, which stores no hashes below its own.
    """

    low: int
    high: int
    count: int
    hash: bytes
    gone: frozenset[int] = NONE
    bit: int = 0
    left: "Subtree | None" = None
    right: "Subtree | None" = None


class Tree:
    """The tree over distinct commitments of 32 bytes in ascending order.

    whole: the subtree of all leaves, None without leaves.
    """

    def __init__(self, leaves: Digests, contents: Digests) -> None:
        """Hash all leaves (n, 32), each with its content (n, 32), and all nodes, in O(n).

        Raises ValueError for other shapes, and for leaves that do not ascend.
        """
        if leaves.shape != contents.shape or leaves.shape[1:] != (32,):
            raise ValueError("a leaf has 32 bytes, and a content of 32 bytes")
        self._begin([_Arrays(leaves, contents)])

    @classmethod
    def of_parts(cls, parts: Iterable[Readable]) -> "Tree":
        """Return the tree of leaves that come in parts, which are hashed one by one.

        Raises ValueError as `__init__`, and for parts that are divided below a bit that divides
        one of them.
        """
        tree = cls.__new__(cls)
        tree._begin(parts)
        return tree

    def _begin(self, parts: Iterable[Readable]) -> None:
        self._parts: list[_Part] = []
        self._count = 0
        for leaves in parts:
            if len(leaves):
                commitments, _ = leaves.read(0, len(leaves))
                bits, last = _divides(commitments), commitments[-1].tobytes()
                self._parts.append(_Part(self._count, leaves, bits, last))
                self._count += len(leaves)
        self.whole = self._hashed()

    def __len__(self) -> int:
        return self._count

    def places(self, commitments: Collection[bytes]) -> list[int]:
        """Return the positions of these leaves, ascending.

        Raises ValueError if one is missing.
        """
        wanted = sorted(set(commitments))
        found: list[int] = []
        for part in self._parts:
            inside = wanted[len(found) : bisect_right(wanted, part.last, lo=len(found))]
            found += part.places(inside)
        if len(found) < len(wanted):
            raise ValueError(MISSING)
        return found

    def without(self, subtree: Subtree | None, places: Sequence[int]) -> Subtree | None:
        """Return a subtree without the leaves at ascending positions; None if it is empty.

        Takes O(log n) for each of them. Raises ValueError if one was removed before.
        """
        if not places:
            return subtree
        if subtree is None:
            raise ValueError(MISSING)
        if subtree.left is None or subtree.right is None:
            return self._small_without(subtree, places)
        split = bisect_left(places, subtree.right.low)
        left = self.without(subtree.left, places[:split])
        right = self.without(subtree.right, places[split:])
        if left is None or right is None:
            return left or right
        return _joined(subtree.bit, left, right)

    def root_without(self, commitments: Collection[bytes]) -> bytes:
        """Return the root of the set without some of its leaves.

        Raises ValueError if one is not in the set.
        """
        return root_of(self.without(self.whole, self.places(commitments)))

    def _small_without(self, subtree: Subtree, places: Sequence[int]) -> Subtree | None:
        inside = range(subtree.low, subtree.high)
        if any(place not in inside or place in subtree.gone for place in places):
            raise ValueError(MISSING)
        gone = subtree.gone.union(places)
        kept = [place for place in inside if place not in gone]
        if not kept:
            return None
        number = bisect_right(self._parts, subtree.low, key=lambda one: one.low) - 1
        part = self._parts[number]  # the whole part: a subtree that spans parts has children
        low, high = subtree.low - part.low, subtree.high - part.low
        hashes = part.leaf_hashes(low, high)
        bits = part.bits[low:high].tolist()
        open_: list[tuple[int, int, bytes]] = []  # subtrees that still lack their right side
        total, node = 0, b""
        for here, after in zip(kept, [*kept[1:], None], strict=True):
            total, node = 1, hashes[here - subtree.low]
            bit = -1 if after is None else min(bits[here - subtree.low : after - subtree.low])
            while open_ and open_[-1][0] > bit:
                at, beside, left = open_.pop()
                total += beside
                node = _inner(at, total, left, node)
            open_.append((bit, total, node))
        return Subtree(subtree.low, subtree.high, total, node, gone)

    def _hashed(self) -> Subtree | None:
        """Return the whole tree, built from its parts."""
        if not self._parts:
            return None
        open_: list[tuple[int, Subtree]] = []  # subtrees that still lack their right side
        for part, after in zip(self._parts, [*self._parts[1:], None], strict=True):
            node = part.hashed()
            bit = -1 if after is None else part.bit_before(after)
            while open_ and open_[-1][0] > bit:
                at, left = open_.pop()
                node = _joined(at, left, node)
            open_.append((bit, node))
        [(_, whole)] = open_
        return whole


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Neighbouring leaves of a tree, the first of them at the position `low`.

    bits (n - 1,): the first bit in which each leaf differs from the next. last: the last leaf.
    """

    low: int
    leaves: Readable
    bits: NDArray[np.int16]
    last: bytes

    def bit_before(self, after: "_Part") -> int:
        """Return the bit that divides it from the next part, above those that divide either."""
        following, _ = after.leaves.read(0, 1)
        (bit,) = _divides(table([self.last, following.tobytes()])).tolist()
        if any((part.bits <= bit).any() for part in (self, after)):
            raise ValueError("a part of the leaves is no subtree")
        return int(bit)

    def places(self, wanted: Sequence[bytes]) -> list[int]:
        """Return the positions of these ascending leaves in the tree."""
        if not wanted:
            return []
        leaves, _ = self.leaves.read(0, len(self.leaves))
        keys = np.ascontiguousarray(leaves).view(KEY).ravel()
        found: list[int] = np.searchsorted(keys, np.array(wanted, dtype=KEY)).tolist()
        for one, place in zip(wanted, found, strict=True):
            if place == len(keys) or leaves[place].tobytes() != one:
                raise ValueError(MISSING)
        return [self.low + place for place in found]

    def hashed(self) -> Subtree:
        """Return its tree; each subtree with more than SMALL leaves has its children.

        Nodes that divide at the same bit are disjoint, so they are hashed together, from the
        last bit to the first.
        """
        size = len(self.leaves)
        # By a subtree's first position: its hash and its end. By its end: its first position.
        hashes = np.concatenate(
            [table(self.leaf_hashes(low, low + CHUNK)) for low in range(0, size, CHUNK)]
        )
        last, first = np.arange(size), np.arange(size)
        large: dict[int, Subtree] = {}

        def part(low: int, high: int) -> Subtree:
            found = large.pop(low, None)
            begin, end = self.low + low, self.low + high
            return found or Subtree(begin, end, high - low, hashes[low].tobytes())

        for bit in np.unique(self.bits)[::-1].tolist():
            right = np.flatnonzero(self.bits == bit) + 1
            left, end = first[right - 1], last[right]
            above = _inner_hashes(bit, end + 1 - left, hashes[left], hashes[right])
            for place in np.flatnonzero(end + 1 - left > SMALL).tolist():
                low, middle, high = int(left[place]), int(right[place]), int(end[place]) + 1
                node, sides = above[place].tobytes(), (part(low, middle), part(middle, high))
                begin, stop = self.low + low, self.low + high
                large[low] = Subtree(begin, stop, high - low, node, NONE, bit, *sides)
            hashes[left], last[left], first[end] = above, end, left
        return part(0, size)

    def leaf_hashes(self, low: int, high: int) -> list[bytes]:
        """Return the hashes of its leaves from `low` to `high` - 1, counted from its first."""
        leaves, contents = self.leaves.read(low, high)
        start = np.broadcast_to(np.frombuffer(LEAF, np.uint8), (len(leaves), len(LEAF)))
        return _sha256(np.concatenate([start, leaves, contents], axis=1))


def table(values: Sequence[bytes]) -> Digests:
    """Return values of 32 bytes as (n, 32). Raises ValueError for other sizes."""
    if {*map(type, values)} - {bytes} or {*map(len, values)} - {32}:
        raise ValueError("a commitment is not 32 bytes")
    return np.frombuffer(b"".join(values), np.uint8).reshape(-1, 32)


def root_of(subtree: Subtree | None) -> bytes:
    """Return the root of the set with this tree."""
    return EMPTY if subtree is None else subtree.hash


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    """Return the root of the set with these ascending commitments, without contents."""
    return root_of(Tree(table(leaves), table([NO_CONTENT] * len(leaves))).whole)


def _divides(leaves: Digests) -> NDArray[np.int16]:
    """Return the first bit in which each leaf differs from the larger next one."""
    found = np.empty(max(len(leaves) - 1, 0), dtype=np.int16)
    for start in range(0, len(found), CHUNK):
        lower, upper = leaves[start : start + CHUNK], leaves[start + 1 : start + CHUNK + 1]
        lower = lower[: len(upper)]
        apart = lower ^ upper
        byte = np.argmax(apart != 0, axis=1)
        rows = np.arange(len(upper))
        if (lower[rows, byte] >= upper[rows, byte]).any():
            raise ValueError("the commitments are not sorted without duplicates")
        # frexp: the exponent of v is the number of its binary digits, exact for v below 2^8.
        digits = np.frexp(apart[rows, byte].astype(np.float64))[1]
        found[start : start + CHUNK] = 8 * byte + 8 - digits
    return found


def _joined(bit: int, left: Subtree, right: Subtree) -> Subtree:
    total = left.count + right.count
    node = _inner(bit, total, left.hash, right.hash)
    return Subtree(left.low, right.high, total, node, NONE, bit, left, right)


def _inner_hashes(
    bit: int, leaves: NDArray[np.int64], left: Digests, right: Digests
) -> Digests:
    """Return the hashes (m, 32) of nodes that divide at a bit, by their leaves (m,)."""
    start = np.frombuffer(INNER + _NUMBERS.pack(bit, 0)[:2], np.uint8)
    fields = (
        np.broadcast_to(start, (len(leaves), len(start))),
        leaves.astype(">u8").view(np.uint8).reshape(-1, 8),
        left,
        right,
    )
    return table(_sha256(np.concatenate(fields, axis=1)))


def _sha256(rows: NDArray[np.uint8]) -> list[bytes]:
    """Return the hash of each row."""
    each = struct.iter_unpack(f"{rows.shape[1]}s", rows.tobytes())
    return [sha256(row).digest() for (row,) in each]


def _inner(bit: int, leaves: int, left: bytes, right: bytes) -> bytes:
    return sha256(INNER + _NUMBERS.pack(bit, leaves) + left + right).digest()
