"""Ranges of a log: entries [start, end), with the proof that none of them is left out.

The proof names two trees, the one before the range and the one at its end. Two consistency
proofs (RFC 6962 section 2.1.2) lead from the first tree to the second, and from there to the
signed head. The first proof also contains the complete subtrees left of the range: from these
and the entries, a verifier computes the second tree's root.

A report has no entries and checks only the two trees; a listing checks both.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lethe.canonical import format_base64, parse_base64
from lethe.log.proofs import ProofError, check_consistency, consistency_proof, subtrees_of_old
from lethe.log.tree import EMPTY_ROOT, HASH_SIZE, NodeReader, Peaks, tree_root
from lethe.records import dataclass


@dataclass(frozen=True, slots=True)
class RangeProof:
    """Proof that the trees of `start` and of `end` entries are prefixes of a head.

    own, onward: consistency proofs from `start` to `end` and from `end` to the head. A proof is
    empty if its older tree is.
    """

    start: int
    end: int
    start_root: bytes
    end_root: bytes
    own: tuple[bytes, ...]
    onward: tuple[bytes, ...]


def prove_range(start: int, end: int, size: int, read: NodeReader) -> RangeProof:
    """Return the proof of the entries [start, end) in the tree of `size` entries.

    Raises ProofError: not 0 <= start <= end <= size.
    """
    if not 0 <= start <= end <= size:
        raise ProofError("a range needs 0 <= start <= end <= size of the tree")
    return RangeProof(
        start,
        end,
        tree_root(start, read),
        tree_root(end, read),
        tuple(consistency_proof(start, end, read) if start else ()),
        tuple(consistency_proof(end, size, read) if end else ()),
    )


def check_trees(proof: RangeProof, size: int, root: bytes) -> None:
    """Check that both trees of the proof are prefixes of the tree (size, root).

    Take size and root from one signed checkpoint. Raises ProofError: they are not, or the proof
    is malformed in any way.
    """
    _check_growth(proof.start, proof.end, proof.own, proof.start_root, proof.end_root)
    _check_growth(proof.end, size, proof.onward, proof.end_root, root)


def check_range(proof: RangeProof, leaves: Sequence[bytes], size: int, root: bytes) -> None:
    """Check that `leaves` (leaf hashes) are all entries [start, end) of the tree (size, root).

    Take size and root from one signed checkpoint. Raises ProofError: one is left out, added,
    changed or in another place, or the proof is malformed in any way.
    """
    check_trees(proof, size, root)
    start, end = proof.start, proof.end
    if len(leaves) != end - start:
        raise ProofError(
            f"the range has {end - start} entries, {len(leaves)} were given: "
            "one is left out or added"
        )
    if any(not isinstance(leaf, bytes) or len(leaf) != HASH_SIZE for leaf in leaves):
        raise ProofError(f"a hash in a proof has {HASH_SIZE} bytes")
    if start == end:
        return
    nodes = subtrees_of_old(start, end, proof.own, proof.start_root) if start else []
    tree = Peaks.from_nodes(start, nodes)
    for leaf in leaves:
        for _ in tree.append(leaf):
            pass
    if tree.root() != proof.end_root:
        raise ProofError(
            "the entries lead to another root: one of them is left out, added, changed or in "
            "another place"
        )


def range_members(proof: RangeProof, own: str = "range") -> dict[str, Any]:
    """Return the proof's members in JSON. own: the name of the range's consistency proof."""
    return {
        "start": {"size": proof.start, "root": format_base64(proof.start_root)},
        "end": {"size": proof.end, "root": format_base64(proof.end_root)},
        "consistency": {
            own: [format_base64(one) for one in proof.own],
            "head": [format_base64(one) for one in proof.onward],
        },
    }


def read_range(members: Mapping[str, Any], own: str = "range") -> RangeProof:
    """Parse the result of `range_members`; other members are ignored.

    Raises ProofError: a member is missing or of another type.
    """
    try:
        (start, start_root), (end, end_root) = (
            (members[name]["size"], parse_base64(members[name]["root"]))
            for name in ("start", "end")
        )
        proofs = members["consistency"]
        mine, onward = (_hashes(proofs[name]) for name in (own, "head"))
    except (LookupError, TypeError, ValueError, AttributeError):
        raise ProofError("the range lacks a member, or one is misspelled") from None
    return RangeProof(start, end, start_root, end_root, mine, onward)


def _hashes(texts: Any) -> tuple[bytes, ...]:
    if not isinstance(texts, list):
        raise TypeError
    return tuple(map(parse_base64, texts))


def _check_growth(
    old: int, new: int, proof: Sequence[bytes], before: bytes, after: bytes
) -> None:
    if type(old) is not int or type(new) is not int or not 0 <= old <= new:
        raise ProofError("the sizes of the trees do not ascend")
    if old == 0:  # every tree extends the empty one, without proof
        if proof or before != EMPTY_ROOT or (new == 0 and after != before):
            raise ProofError("the empty tree has another root")
        return
    check_consistency(old, new, proof, before, after)
