"""The Merkle tree of RFC 6962 section 2.1 over a list, and what is left of it without some.

The sets that a claim is about differ in a few records. What is left of a tree has the same
leaves but for those, and every subtree that covers the same leaves at an aligned place has
the same hash: it is looked up, and only the others are hashed.
"""

import hashlib
from collections.abc import Collection, Sequence
from itertools import compress

import numpy as np


class Tree:
    """Every level of a tree, leaves first; an odd last node rises unhashed.

    Pairing from the left and promoting an odd node is MTH's split at a power of two.
    """

    def __init__(self, leaves: Sequence[bytes]) -> None:
        """Hash all leaf inputs and nodes, in O(n)."""
        self.leaves = list(leaves)
        row = [hashlib.sha256(b"\x00" + leaf).digest() for leaf in self.leaves]
        self._levels = [row]
        while len(row) > 1:
            row = _nodes(row) + row[len(row) // 2 * 2 :]
            self._levels.append(row)

    @property
    def root(self) -> bytes:
        """The root, 32 bytes."""
        return self._levels[-1][0] if self.leaves else hashlib.sha256(b"").digest()

    def without(self, gone: Collection[bytes]) -> "Tree":
        """Return the tree over the leaves that are not in `gone`, in their order."""
        stays = [leaf not in gone for leaf in self.leaves]
        left = object.__new__(Tree)
        left.leaves = list(compress(self.leaves, stays))
        row = list(compress(self._levels[0], stays))
        left._levels = [row]
        # Where a node of the new row is found in this tree's row of the same level, else -1.
        places = np.flatnonzero(stays)
        for known in self._levels[1:]:
            if len(row) < 2:
                break
            even = len(row) // 2 * 2
            lefts, rights = places[:even:2], places[1:even:2]
            same = (lefts >= 0) & (lefts % 2 == 0) & (rights == lefts + 1)
            parents = np.where(same, lefts // 2, -1)
            pairs = [known[i] for i in parents.tolist()]
            other = np.flatnonzero(~same)
            children = np.stack((2 * other, 2 * other + 1), axis=1).ravel().tolist()
            fresh = _nodes([row[i] for i in children])
            for i, node in zip(other.tolist(), fresh, strict=True):
                pairs[i] = node
            places = np.concatenate((parents, np.full(len(row) - even, -1)))
            row = pairs + row[even:]
            left._levels.append(row)
        return left


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    """Return the root of a list of leaf inputs."""
    return Tree(leaves).root


def _nodes(row: Sequence[bytes]) -> list[bytes]:
    """Return the hash of each pair of a row, from the left."""
    pairs = zip(row[::2], row[1::2], strict=False)
    return [hashlib.sha256(b"\x01" + left + right).digest() for left, right in pairs]
