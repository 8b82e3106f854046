"""Receipts: an entry, its inclusion proof and the signed checkpoint that it proves against."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlmodel import Session

from app.ledger.storage import NodeTable, covering_checkpoint, read_leaves, read_size
from lethe.errors import LetheError
from lethe.log.proofs import ProofError, inclusion_proof


class UnpublishedError(LetheError):
    """The entry is durable, but no signed checkpoint covers it yet."""

    slug, title, status = "log-unpublished", "No checkpoint covers this entry yet", 503


@dataclass(frozen=True, slots=True)
class EntryReceipt:
    """The proof that entry `log_index` is in the log; hashes are 32 bytes each.

    `leaf` is the entry itself. `checkpoint` is the signed note of the smallest published
    tree that contains the entry, so an entry's receipt never changes.
    """

    log_index: int
    tree_size: int
    leaf: bytes
    hashes: tuple[bytes, ...]
    checkpoint: str


@dataclass(frozen=True, slots=True)
class Appended:
    """The entries of one transaction."""

    start: int
    leaves: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Published:
    """Entries of one transaction, and the smallest published checkpoint over all of them.

    nodes: {(level, index): hash} of the complete subtrees of the tree before, and of all
    subtrees completed since. An inclusion proof of one of the entries reads no other node.
    """

    appended: Appended
    size: int
    note: str
    nodes: Mapping[tuple[int, int], bytes]

    def receipt(self, index: int) -> EntryReceipt | None:
        """Return the receipt of entry `index`, None if it is not in this transaction."""
        start, leaves = self.appended.start, self.appended.leaves
        if not start <= index < start + len(leaves):
            return None
        proof = inclusion_proof(index, self.size, lambda level, at: self.nodes[level, at])
        return EntryReceipt(index, self.size, leaves[index - start], tuple(proof), self.note)


def read_receipt(session: Session, index: int) -> EntryReceipt:
    """Return the receipt of entry `index`.

    Raises ProofError: there is no such entry; UnpublishedError: no checkpoint covers it yet.
    """
    checkpoint = covering_checkpoint(session, index)
    if checkpoint is None or index < 0:
        if not 0 <= index < read_size(session):
            raise ProofError("the log has no entry of this index")
        raise UnpublishedError("the checkpoint over this entry is being signed: try again")
    size = checkpoint.size
    proof = NodeTable(session).compute(lambda read: inclusion_proof(index, size, read))
    (leaf,) = read_leaves(session, index, index + 1)
    return EntryReceipt(index, size, leaf, tuple(proof), checkpoint.note)
