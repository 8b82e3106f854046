"""Inclusion and consistency proofs: RFC 6962 sections 2.1.1 and 2.1.2.

Prover and checker walk the same path from the root downwards, so a proof's length follows from
the two numbers alone, and a proof of another length is refused before any hashing.
"""

from collections.abc import Sequence

from lethe.errors import LetheError
from lethe.log.tree import HASH_SIZE, MAX_SIZE, NodeReader, node_hash, range_root, split_point


class ProofError(LetheError):
    """A proof that is malformed, of another tree, or for a leaf that does not exist."""

    slug, title, status = "bad-proof", "Invalid proof", 400


def inclusion_proof(index: int, size: int, read: NodeReader) -> list[bytes]:
    """Return PATH(index, D[size]): the siblings from leaf `index` up to the root.

    Raises ProofError: there is no leaf `index` in a tree of `size` leaves.
    """
    _require_leaf(index, size)
    return [range_root(start, end, read) for start, end, _ in _leaf_path(index, size)]


def check_inclusion(
    index: int, size: int, leaf: bytes, proof: Sequence[bytes], root: bytes
) -> None:
    """Check that `leaf` (a leaf hash) is leaf `index` of the tree (size, root).

    Take size and root from one checkpoint: only its signature binds them. If the path has the
    same shape in two sizes, as for leaf 5 of 7 and of 8, one root fits both sizes. Raises
    ProofError: it is not, or the proof is malformed in any way.
    """
    _require_leaf(index, size)
    path = _leaf_path(index, size)
    _require_hashes([leaf])
    _require_length(proof, len(path))
    digest = leaf
    for sibling, (_, _, on_right) in zip(proof, path, strict=True):
        digest = node_hash(digest, sibling) if on_right else node_hash(sibling, digest)
    if digest != root:
        raise ProofError(
            "the inclusion proof leads to another root: leaf, index or tree differ"
        )


def consistency_proof(old: int, new: int, read: NodeReader) -> list[bytes]:
    """Return PROOF(old, D[new]), which shows that tree `new` only appended to tree `old`.

    Raises ProofError: not 0 < old <= new. Every tree extends the empty one, without proof.
    """
    _require_growth(old, new)
    start, siblings = _edge_path(old, new)
    seed = [range_root(start, old, read)] if start else []
    return seed + [range_root(first, end, read) for first, end, _ in siblings]


def check_consistency(
    old: int, new: int, proof: Sequence[bytes], old_root: bytes, new_root: bytes
) -> None:
    """Check that the tree (new, new_root) starts with all leaves of (old, old_root).

    Raises ProofError: it does not, or the proof is malformed, or not 0 < old <= new.
    """
    _require_growth(old, new)
    start, siblings = _edge_path(old, new)
    if not (isinstance(old_root, bytes) and isinstance(new_root, bytes)):
        raise ProofError("a root is bytes")
    # Without a left sibling the old tree is a node of the new one: its root is known.
    _require_length(proof, len(siblings) + (1 if start else 0))
    before = after = proof[0] if start else old_root
    for sibling, (_, _, on_right) in zip(proof[1 if start else 0 :], siblings, strict=True):
        if not on_right:
            before = node_hash(sibling, before)
        after = node_hash(after, sibling) if on_right else node_hash(sibling, after)
    if before != old_root or after != new_root:
        raise ProofError("the consistency proof leads to other roots: the trees have forked")


def subtrees_of_old(old: int, new: int, proof: Sequence[bytes], old_root: bytes) -> list[bytes]:
    """Return the complete subtrees of the older tree, largest first.

    The proof must be one that `check_consistency` accepted, with old < new. It contains them:
    the older tree ends at the end of a left child of the new one, and that child and everything
    left of it are complete.
    """
    assert 0 < old < new
    start, siblings = _edge_path(old, new)
    seed = proof[0] if start else old_root
    left = [
        digest
        for digest, (_, _, on_right) in zip(proof[1 if start else 0 :], siblings, strict=True)
        if not on_right
    ]
    return [*reversed(left), seed]


# A sibling on the way up: leaves [start, end), and whether it is right of the path.
_Sibling = tuple[int, int, bool]


def _leaf_path(index: int, size: int) -> list[_Sibling]:
    """Return the siblings of leaf `index`, lowest first (RFC 6962 section 2.1.1)."""
    siblings: list[_Sibling] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + split_point(end - start)
        if index < middle:
            siblings.append((middle, end, True))
            end = middle
        else:
            siblings.append((start, middle, False))
            start = middle
    siblings.reverse()
    return siblings


def _edge_path(old: int, new: int) -> tuple[int, list[_Sibling]]:
    """Return (start, siblings, lowest first) of the subtree [start, old) inside `new`.

    RFC 6962 section 2.1.2: SUBPROOF stops where old ends a subtree; `start` is 0 exactly
    where its flag b is still true.
    """
    siblings: list[_Sibling] = []
    start, end = 0, new
    while end != old:
        middle = start + split_point(end - start)
        if old <= middle:
            siblings.append((middle, end, True))
            end = middle
        else:
            siblings.append((start, middle, False))
            start = middle
    siblings.reverse()
    return start, siblings


def _require_leaf(index: int, size: int) -> None:
    if not (_is_size(size) and _is_size(index) and index < size):
        raise ProofError("there is no such leaf: index must be below the tree size")


def _require_growth(old: int, new: int) -> None:
    if not (_is_size(old) and _is_size(new) and 0 < old <= new):
        raise ProofError("consistency needs 0 < old size <= new size")


def _is_size(value: int) -> bool:
    # A proof from JSON may contain true, 1.0 or "1" here.
    return type(value) is int and 0 <= value <= MAX_SIZE


def _require_length(proof: Sequence[bytes], length: int) -> None:
    if isinstance(proof, (str, bytes)) or not isinstance(proof, Sequence):
        raise ProofError("a proof is a list of hashes")
    if len(proof) != length:
        raise ProofError(f"the proof has {len(proof)} hashes, these sizes need {length}")
    _require_hashes(proof)


def _require_hashes(hashes: Sequence[bytes]) -> None:
    if not all(isinstance(item, bytes) and len(item) == HASH_SIZE for item in hashes):
        raise ProofError(f"a hash in a proof has {HASH_SIZE} bytes")
