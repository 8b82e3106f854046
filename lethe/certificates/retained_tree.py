"""The tree of a retained set: a binary radix tree over the 32-byte commitments of its records.

A set has one tree, whatever the order in which records were added and removed. An inner node
is at the first bit in which the commitments under it differ: those with 0 in that bit are under
its left child, those with 1 under its right one (Morrison 1968, PATRICIA). Bits count from the
highest of the first byte. Commitments are HMACs, so a path has about log2(n) + 2 nodes, and at
most 256.

    leaf     SHA256(0x00 | TAG | commitment | content)
    inner    SHA256(0x01 | TAG | bit, uint16 | leaves under it, uint64 | left | right)
    empty    SHA256(0x02 | TAG)

Integers are big-endian. The content of a leaf is the salted digest of the record's stored
data, 32 bytes, or 32 zero bytes if nothing is stored. The root determines the leaves, their
number and the shape.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, groupby, islice
from operator import itemgetter
from struct import Struct
from typing import Generic, TypeVar, cast

from lethe.certificates.errors import RemovalError

TAG = b"lethe/retained-set/v2\0"
BITS = 256  # of a commitment
EMPTY_ROOT = sha256(b"\x02" + TAG).digest()
NO_CONTENT = bytes(32)
SHORT = "a commitment has 32 bytes"
DISORDERED = "the commitments must ascend and none may repeat: sort them"
OTHER = "what is stored of the retained set is not what its root says"

Leaf = tuple[bytes, bytes]  # commitment and content
_LEAF, _INNER = b"\x00" + TAG, b"\x01" + TAG
_NUMBERS = Struct(">HQ")
N = TypeVar("N")


@dataclass(frozen=True, slots=True)
class PathStep:
    """An inner node on the way from a leaf to the root, and its other child.

    bit: where the node divides. count, hash: number of leaves under the other child, and its
    hash.
    """

    bit: int
    count: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class Path:
    """The path from a leaf to the root: the leaf's content, and the nodes, lowest first."""

    content: bytes
    steps: tuple[PathStep, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """The leaves whose commitments begin with a prefix, as their number and root."""

    prefix: bytes
    count: int
    hash: bytes


# Returns the stored children of a prefix in ascending order: all its leaves, or parts whose
# prefixes are one byte longer.
Load = Callable[[bytes], Sequence[Leaf] | Sequence[Part]]


def leaf_hash(commitment: bytes, content: bytes) -> bytes:
    """Return the hash of a leaf."""
    return sha256(_LEAF + commitment + content).digest()


def inner_hash(bit: int, count: int, left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node. `bit` is below 2^16 and `count` below 2^64."""
    return sha256(_INNER + _NUMBERS.pack(bit, count) + left + right).digest()


def bit_of(commitment: bytes, bit: int) -> int:
    """Return a bit of a commitment, 0 or 1."""
    return commitment[bit >> 3] >> (7 - (bit & 7)) & 1


class Fold(Generic[N]):
    """Folds nodes, given in ascending order of their commitments, in O(depth) memory.

    `join(bit, left, right)` makes an inner node.
    """

    def __init__(self, join: Callable[[int, N, N], N]) -> None:
        """Begin with no node."""
        self._join = join
        # Subtrees whose right side is still open, each with the bit at which it begins; bits
        # ascend.
        self._open: list[tuple[int, N]] = []
        self._last: tuple[int, N] | None = None

    def append(self, commitment: bytes, node: N) -> None:
        """Add the next node.

        Raises RemovalError if its commitment does not have 32 bytes or is not above the last
        one.
        """
        if len(commitment) != 32:
            raise RemovalError(SHORT)
        number = int.from_bytes(commitment)
        if self._last is not None:
            if number <= self._last[0]:
                raise RemovalError(DISORDERED)
            bit = BITS - (number ^ self._last[0]).bit_length()
            self._open.append((bit, self._close(bit)))
        self._last = number, node

    def root(self) -> N | None:
        """Return the root of all nodes, None if there were none."""
        return None if self._last is None else self._close(-1)

    def _close(self, bit: int) -> N:
        """Close the subtrees below `bit` and return the one that ends in the last node."""
        assert self._last is not None
        _, node = self._last
        while self._open and self._open[-1][0] > bit:
            at, left = self._open.pop()
            node = self._join(at, left, node)
        return node


class _Leaf:
    __slots__ = ("commitment", "content", "count", "hash")

    def __init__(self, commitment: bytes, content: bytes) -> None:
        if len(content) != 32:
            raise RemovalError("the content of a record has 32 bytes")
        self.commitment, self.content, self.count = commitment, content, 1
        self.hash = leaf_hash(commitment, content)


class _Inner:
    __slots__ = ("bit", "children", "count", "known")
    count: int

    def __init__(self, bit: int, left: "_Node", right: "_Node") -> None:
        self.bit = bit
        self.children = [left, right]
        self.count = left.count + right.count
        self.known: bytes | None = None

    @property
    def hash(self) -> bytes:
        """The hash, recomputed if the node changed."""
        if self.known is None:
            left, right = self.children
            self.known = inner_hash(self.bit, self.count, left.hash, right.hash)
        return self.known


_Node = _Leaf | _Inner | Part


class RetainedTree:
    """The tree of a changing set: O(log n) hashes for each record added or removed.

    Parts of it may be stored elsewhere. They are loaded when a record below them is added or
    removed, and must match the tree's number of leaves and hash for them.
    """

    def __init__(self, leaves: Iterable[Leaf] = ()) -> None:
        """Build the tree of a set from leaves in any order.

        Raises RemovalError if a commitment or a content does not have 32 bytes, or if a
        commitment is given twice.
        """
        fold = Fold[_Node](_Inner)
        for commitment, content in sorted(leaves, key=itemgetter(0)):
            fold.append(commitment, _Leaf(commitment, content))
        self._root = fold.root()
        self._load: Load | None = None
        self._divided: set[bytes] = set()  # prefixes whose parts were loaded

    @classmethod
    def stored(cls, root: bytes, count: int, load: Load) -> "RetainedTree":
        """Return the tree of a stored set, by its root and its number of records.

        Raises RemovalError if the root of an empty set is wrong. All methods raise it if loaded
        parts do not match the tree.
        """
        tree = cls()
        tree._load = load
        if count:
            tree._root = Part(b"", count, root)
        elif root != EMPTY_ROOT:
            raise RemovalError(OTHER)
        return tree

    @property
    def whole(self) -> bool:
        """Whether the whole tree is in memory."""
        return self._load is None

    @property
    def root(self) -> bytes:
        """The root, 32 bytes."""
        return EMPTY_ROOT if self._root is None else self._root.hash

    @property
    def count(self) -> int:
        """The number of records in the set."""
        return 0 if self._root is None else self._root.count

    def __contains__(self, commitment: bytes) -> bool:
        """Return whether the set has a record with this commitment (32 bytes)."""
        leaf, _ = self._descend(commitment)
        return leaf is not None and leaf.commitment == commitment

    def add(self, commitment: bytes, content: bytes) -> None:
        """Add a record to the set. The hashes above it are computed when needed.

        Raises RemovalError if the set has it, or if an argument does not have 32 bytes.
        """
        if len(commitment) != 32:
            raise RemovalError(SHORT)
        fresh = _Leaf(commitment, content)
        nearest, above = self._descend(commitment)
        if nearest is None:
            self._root = fresh
            return
        apart = int.from_bytes(nearest.commitment) ^ int.from_bytes(commitment)
        if not apart:
            raise RemovalError("a record to add is in the retained set")
        bit = BITS - apart.bit_length()
        below: _Node = nearest
        while above and above[-1].bit > bit:
            below = above.pop()
        pair = (below, fresh) if bit_of(commitment, bit) else (fresh, below)
        self._put(above, commitment, _Inner(bit, *pair))
        for node in above:
            node.count, node.known = node.count + 1, None

    def remove(self, commitment: bytes) -> Path:
        """Remove a record from the set; return its path in the tree before.

        Raises RemovalError if the set does not have it.
        """
        leaf, above = self._descend(commitment)
        if leaf is None or leaf.commitment != commitment:
            raise RemovalError("a record to erase is not in the retained set under this salt")
        steps = []
        for node in reversed(above):
            other = node.children[1 - bit_of(commitment, node.bit)]
            steps.append(PathStep(node.bit, other.count, other.hash))
        if above:
            parent = above.pop()
            self._put(above, commitment, parent.children[1 - bit_of(commitment, parent.bit)])
        else:
            self._root = None
        for node in above:
            node.count, node.known = node.count - 1, None
        return Path(leaf.content, tuple(steps))

    def divided(self, cap: int) -> dict[bytes, list[Part] | None]:
        """Return the parts of each prefix that may have changed since they were loaded.

        A prefix with more than `cap` leaves is divided by its next byte. None: it was divided
        when it was loaded and now has too few leaves.
        """
        found: dict[bytes, list[Part] | None] = dict.fromkeys(self._divided)

        def divide(prefix: bytes, node: _Node) -> None:
            if node.count <= cap or (isinstance(node, Part) and node.prefix == prefix):
                return
            below = [(_first(one)[: len(prefix) + 1], one) for one in _within(node, prefix)]
            found[prefix] = [Part(longer, one.count, one.hash) for longer, one in below]
            for longer, one in below:
                divide(longer, one)

        if self._root is not None:
            divide(b"", self._root)
        return found

    def _descend(self, commitment: bytes) -> tuple[_Leaf | None, list[_Inner]]:
        """Return the leaf that a commitment's bits lead to, and the nodes above, root first."""
        above: list[_Inner] = []
        node = self._root
        while node is not None and not isinstance(node, _Leaf):
            if isinstance(node, Part):
                # The part may have another prefix: what it holds is known only once it is
                # loaded.
                node = self._loaded(node)
                self._put(above, commitment, node)
            else:
                above.append(node)
                node = node.children[bit_of(commitment, node.bit)]
        return node, above

    def _loaded(self, part: Part) -> _Node:
        """Return the node of a part, with its stored content loaded."""
        assert self._load is not None
        fold = Fold[_Node](_Inner)
        for item in self._load(part.prefix):
            if isinstance(item, Part):
                key, node = item.prefix, cast(_Node, item)
                one_more = len(key) == len(part.prefix) + 1 and item.count > 0
                self._divided.add(part.prefix)
            else:
                key, one_more = item[0], True
                node = _Leaf(*item)
            if not one_more or not key.startswith(part.prefix):
                raise RemovalError(OTHER)
            fold.append(key.ljust(32, b"\0"), node)
        found = fold.root()
        if found is None or (found.count, found.hash) != (part.count, part.hash):
            raise RemovalError(OTHER)
        return found

    def _put(self, above: Sequence[_Inner], commitment: bytes, node: _Node) -> None:
        """Attach a node where a commitment's bits lead from the lowest node of `above`."""
        if above:
            above[-1].children[bit_of(commitment, above[-1].bit)] = node
        else:
            self._root = node


def _first(node: _Node) -> bytes:
    """Return a node's first commitment or prefix; it begins with their common bits."""
    while isinstance(node, _Inner):
        node = node.children[0]
    return node.prefix if isinstance(node, Part) else node.commitment


def _within(node: _Node, prefix: bytes) -> Iterator[_Node]:
    """Yield the subtrees of a node whose leaves share the byte after `prefix`."""
    if isinstance(node, _Inner) and node.bit < 8 * len(prefix) + 8:
        for child in node.children:
            yield from _within(child, prefix)
    else:
        yield node


def divided(leaves: Iterable[Leaf], cap: int) -> tuple[Part, dict[bytes, list[Part]]]:
    """Return the root part of a set, and the parts of each divided prefix.

    leaves: in ascending order; they are read once, with few in memory at a time.

    A prefix with more than `cap` leaves is divided by its next byte, so the stored form depends
    on the set alone. Raises RemovalError: as for the tree.
    """
    found: dict[bytes, list[Part]] = {}

    def part(prefix: bytes, own: Iterator[Leaf]) -> Part:
        first = list(islice(own, cap + 1))
        if len(first) <= cap:
            root, count = folded_root(first)
            return Part(prefix, count, root)
        if len(prefix) == 32:
            raise RemovalError(DISORDERED)
        groups = groupby(chain(first, own), lambda leaf: leaf[0][len(prefix) : len(prefix) + 1])
        parts = [part(prefix + byte, group) for byte, group in groups]
        found[prefix] = parts
        return joined(prefix, parts)

    return part(b"", iter(leaves)), found


def joined(prefix: bytes, parts: Iterable[Part]) -> Part:
    """Join the parts that divide a prefix by its next byte, given in ascending order.

    Raises RemovalError: they do not ascend, one is not of the prefix, or none is given.
    """
    fold = Fold[tuple[int, bytes]](_join)
    for part in parts:
        if part.prefix[:-1] != prefix or part.count < 1:
            raise RemovalError(OTHER)
        fold.append(part.prefix.ljust(32, b"\0"), (part.count, part.hash))
    found = fold.root()
    if found is None:
        raise RemovalError(OTHER)
    return Part(prefix, *found)


def retained_root(leaves: Iterable[Leaf]) -> bytes:
    """Return the root of the retained set with these leaves, in any order.

    Raises RemovalError: as for the tree.
    """
    return folded_root(sorted(leaves, key=itemgetter(0)))[0]


def folded_root(leaves: Iterable[Leaf]) -> tuple[bytes, int]:
    """Return the root and size of a set from leaves in ascending order, in one pass.

    Raises RemovalError: they do not ascend, or a commitment does not have 32 bytes.
    """
    # `Fold` written out for speed: a registration has a leaf for each of its rows.
    waiting: list[tuple[int, int, bytes]] = []  # bit, count and hash of left subtrees
    last, count, node = -1, 0, EMPTY_ROOT
    for commitment, content in leaves:
        if len(commitment) != 32:
            raise RemovalError(SHORT)
        number = int.from_bytes(commitment)
        if last >= 0:
            if number <= last:
                raise RemovalError(DISORDERED)
            bit = BITS - (number ^ last).bit_length()
            while waiting and waiting[-1][0] > bit:
                at, more, left = waiting.pop()
                count += more
                node = sha256(_INNER + _NUMBERS.pack(at, count) + left + node).digest()
            waiting.append((bit, count, node))
        last, count, node = number, 1, sha256(_LEAF + commitment + content).digest()
    while waiting:
        at, more, left = waiting.pop()
        count += more
        node = inner_hash(at, count, left, node)
    return node, count


def _join(bit: int, left: tuple[int, bytes], right: tuple[int, bytes]) -> tuple[int, bytes]:
    count = left[0] + right[0]
    return count, inner_hash(bit, count, left[1], right[1])


def follow(commitment: bytes, path: Path) -> tuple[tuple[bytes, int], tuple[bytes, int]]:
    """Return root and size of the set that a path belongs to, and of that set without the leaf.

    The leaf's sibling replaces its parent, and every node above has one leaf less; nothing else
    differs between the two sets. Raises RemovalError if the path is not one from a leaf
    upwards.
    """
    count, before, after = 1, leaf_hash(commitment, path.content), EMPTY_ROOT
    last = BITS
    for step in path.steps:
        if not 0 <= step.bit < last:
            raise RemovalError("the bits of its path do not fall towards the root")
        if step.count < 1:
            raise RemovalError("a subtree beside its path is empty")
        total = count + step.count
        if total >= 2**63:
            raise RemovalError("its path counts more records than there can be")
        right = bit_of(commitment, step.bit)
        pair = (step.hash, before) if right else (before, step.hash)
        if count == 1:
            after = step.hash
        else:
            rest = (step.hash, after) if right else (after, step.hash)
            after = inner_hash(step.bit, total - 1, *rest)
        before = inner_hash(step.bit, total, *pair)
        count, last = total, step.bit
    return (before, count), (after, count - 1)
