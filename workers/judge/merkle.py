"""The tree of a retained set, computed again from the whole list of its commitments.

    leaf     SHA256(0x00 | TAG | commitment | content)
    inner    SHA256(0x01 | TAG | bit, uint16 | leaves under it, uint64 | left | right)
    empty    SHA256(0x02 | TAG)

An inner node divides its commitments at the first bit in which they differ. Numbers are
big-endian. It shares no code with who publishes the roots.

The sets that a claim is about differ in a few records. A subtree that none of them is in has
the same hash in both, so only the nodes above a record that went are hashed again.
"""

import hashlib
import struct
from bisect import bisect_left
from collections.abc import Collection, Sequence

import numpy as np

TAG = b"lethe/retained-set/v2\0"
EMPTY = hashlib.sha256(b"\x02" + TAG).digest()
NO_CONTENT = bytes(32)
Part = tuple[int, bytes] | None  # leaves and hash of a subtree, None of one without leaves


class Tree:
    """The tree over commitments of 32 bytes in ascending order, none twice."""

    def __init__(self, leaves: Sequence[bytes], contents: Sequence[bytes]) -> None:
        """Hash all leaves, each with its content, and all nodes, in O(n)."""
        self.leaves, self.contents = leaves, contents
        # A node's number is its place in these: first the leaves, then the inner nodes, each
        # after its children. `_middle`: the place of the first leaf under the right child.
        start = b"\x00" + TAG
        self._hashes = [
            hashlib.sha256(start + leaf + content).digest()
            for leaf, content in zip(leaves, contents, strict=True)
        ]
        self._counts = [1] * len(leaves)
        self._inner: list[tuple[int, int, int, int]] = []  # bit, left, right, middle
        open_: list[tuple[int, int, int]] = []
        node = 0
        for place, bit in enumerate([*_divides(leaves), -1] if leaves else (), 1):
            node = place - 1
            while open_ and open_[-1][0] > bit:
                node = self._join(*open_.pop(), node)
            open_.append((bit, node, place))
        self._top = node

    def _join(self, bit: int, left: int, middle: int, right: int) -> int:
        count = self._counts[left] + self._counts[right]
        self._hashes.append(_inner(bit, count, self._hashes[left], self._hashes[right]))
        self._counts.append(count)
        self._inner.append((bit, left, right, middle))
        return len(self._hashes) - 1

    @property
    def root(self) -> bytes:
        """The root, 32 bytes."""
        return self._hashes[self._top] if self.leaves else EMPTY

    def root_without(self, gone: Collection[bytes]) -> bytes:
        """Return the root of the set without some of its leaves, in O(gone x log n).

        Raises ValueError where one is not in the set.
        """
        ordered = sorted(set(gone))
        if not ordered:
            return self.root
        places = [bisect_left(self.leaves, one) for one in ordered]
        found = [self.leaves[place] for place in places if place < len(self.leaves)]
        if found != ordered:
            raise ValueError("a leaf to leave out is not in the set")
        rest = self._without(self._top, places)
        return EMPTY if rest is None else rest[1]

    def _without(self, node: int, gone: Sequence[int]) -> Part:
        """Return what is left of a subtree without the leaves at some places, in order."""
        if not gone:
            return self._counts[node], self._hashes[node]
        if len(gone) == self._counts[node]:
            return None
        bit, left, right, middle = self._inner[node - len(self.leaves)]
        split = bisect_left(gone, middle)
        first, second = self._without(left, gone[:split]), self._without(right, gone[split:])
        if first is None or second is None:
            return first or second
        count = first[0] + second[0]
        return count, _inner(bit, count, first[1], second[1])


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    """Return the root of the set with these commitments, in ascending order, no contents."""
    return Tree(leaves, [NO_CONTENT] * len(leaves)).root


def _divides(leaves: Sequence[bytes]) -> list[int]:
    """Return the first bit in which each leaf differs from the next one."""
    table = np.frombuffer(b"".join(leaves), np.uint8).reshape(-1, 32)
    apart = table[1:] ^ table[:-1]
    byte = np.argmax(apart != 0, axis=1)
    value = np.take_along_axis(apart, byte[:, None], axis=1)[:, 0]
    # frexp: the exponent of v is the number of its binary digits, exact for v below 2^8.
    digits = np.frexp(value.astype(np.float64))[1]
    found: list[int] = (8 * byte + 8 - digits).tolist()
    return found


def _inner(bit: int, count: int, left: bytes, right: bytes) -> bytes:
    numbers = struct.pack(">HQ", bit, count)
    return hashlib.sha256(b"\x01" + TAG + numbers + left + right).digest()
