"""The Merkle tree of RFC 6962 section 2.1, read through the subtrees a log stores.

A node (level, index) is the hash of the complete subtree over leaves
[index * 2**level, (index + 1) * 2**level). A log stores these and never changes one; every
other hash of the tree is folded from at most 63 of them. `Peaks` grows such a tree with one
hash for each level.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256

HASH_SIZE = 32
MAX_SIZE = 2**63 - 1  # tree sizes are int64 in every other implementation and database

NodeReader = Callable[[int, int], bytes]

EMPTY_ROOT = sha256(b"").digest()  # RFC 6962 section 2.1: MTH({}) = SHA-256()


def leaf_hash(data: bytes) -> bytes:
    """Return SHA256(0x00 || data), RFC 6962 section 2.1."""
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return SHA256(0x01 || left || right), RFC 6962 section 2.1."""
    return sha256(b"\x01" + left + right).digest()


def leaf_hashes(leaves: Iterable[bytes]) -> list[bytes]:
    """Return the leaf hash of each leaf; one call instead of many saves a third of the time."""
    return [sha256(b"\x00" + leaf).digest() for leaf in leaves]


def node_hashes(row: Sequence[bytes]) -> list[bytes]:
    """Return the hash of each pair of a row, from the left; an odd last node is skipped."""
    pairs = zip(row[::2], row[1::2], strict=False)
    return [sha256(b"\x01" + left + right).digest() for left, right in pairs]


def split_point(size: int) -> int:
    """Return the largest power of two below `size` (RFC 6962's k); `size` is at least 2."""
    return 1 << ((size - 1).bit_length() - 1)


def root_of(leaf_hashes: Sequence[bytes]) -> bytes:
    """Return the root over leaf hashes held in memory, in O(n) time and space."""
    if not leaf_hashes:
        return EMPTY_ROOT
    row = list(leaf_hashes)
    while len(row) > 1:
        # An odd last node moves up unhashed: the RFC's split leaves it alone on the right.
        row = node_hashes(row) + (row[-1:] if len(row) % 2 else [])
    return row[0]


def range_root(start: int, end: int, read: NodeReader) -> bytes:
    """Return the root over leaves [start, end), one subtree of the RFC's recursion.

    This is the RFC's hash only if `start` is a multiple of a power of two that is at least `end
    - start`, which holds for every range that the recursion reaches.
    """
    size = end - start
    assert 0 <= start < end <= MAX_SIZE
    peaks = []
    for level in reversed(range(size.bit_length())):
        if size >> level & 1:
            peaks.append(read(level, start >> level))
            start += 1 << level
    root = peaks.pop()
    while peaks:
        root = node_hash(peaks.pop(), root)
    return root


def tree_root(size: int, read: NodeReader) -> bytes:
    """Return the root of the first `size` leaves, in at most 63 reads."""
    return range_root(0, size, read) if size else EMPTY_ROOT


class Peaks:
    """The tree of the entries read so far, as the complete subtrees it consists of."""

    def __init__(self) -> None:
        self.size = 0
        self._peaks: list[tuple[int, bytes]] = []  # (level, hash), largest first

    @classmethod
    def of(cls, size: int, read: NodeReader) -> "Peaks":
        """Return the tree of the first `size` entries, in at most 63 reads of stored nodes."""
        nodes, start = [], 0
        for level in _levels(size):
            nodes.append(read(level, start >> level))
            start += 1 << level
        return cls.from_nodes(size, nodes)

    @classmethod
    def from_nodes(cls, size: int, nodes: Sequence[bytes]) -> "Peaks":
        """Return the tree of `size` entries, given its complete subtrees, largest first."""
        peaks = cls()
        peaks.size = size
        peaks._peaks = list(zip(_levels(size), nodes, strict=True))
        return peaks

    def append(self, digest: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Add a leaf hash and yield the nodes (level, index, hash) that it completes."""
        level, index = 0, self.size
        self.size += 1
        yield level, index, digest
        while self._peaks and self._peaks[-1][0] == level:
            digest = node_hash(self._peaks.pop()[1], digest)
            level, index = level + 1, index >> 1
            yield level, index, digest
        self._peaks.append((level, digest))

    def nodes(self) -> dict[tuple[int, int], bytes]:
        """Return the complete subtrees that make up the tree, by (level, index)."""
        found, start = {}, 0
        for level, value in self._peaks:
            found[level, start >> level] = value
            start += 1 << level
        return found

    def copy(self) -> "Peaks":
        """Return a copy that can be extended without changing this tree."""
        other = Peaks()
        other.size, other._peaks = self.size, list(self._peaks)
        return other

    def root(self) -> bytes:
        """Return the root of the tree."""
        if not self._peaks:
            return EMPTY_ROOT
        (_, root), *larger = reversed(self._peaks)
        for _, left in larger:
            root = node_hash(left, root)
        return root


def _levels(size: int) -> list[int]:
    return [level for level in reversed(range(size.bit_length())) if size >> level & 1]
