"""The root of a growing log, with one stored hash for each level."""

from collections.abc import Iterator, Sequence

from lethe.log.tree import EMPTY_ROOT, NodeReader, node_hash


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
