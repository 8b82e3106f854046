"""Verification of receipts: whether the log holds the request."""

from lethe.client.answers import Receipt
from lethe.client.errors import ReceiptError
from lethe.errors import LetheError
from lethe.log.checkpoint import open_checkpoint
from lethe.log.entries import ERASURE_EVENT, parse_leaf
from lethe.log.note import NoteVerifier
from lethe.log.proofs import check_inclusion
from lethe.log.tree import leaf_hash


def verify_receipt(receipt: Receipt, log: NoteVerifier) -> None:
    """Check that `log` signed a tree that holds this request's entry.

    Keep the checkpoint: if the log later denies the entry, no consistency proof leads from this
    checkpoint to a later one, and both are signed. Raises ReceiptError: the checkpoint is not
    the log's, the entry is not in its tree, or the entry is not the receipt of this request.
    """
    proof = receipt.receipt
    try:
        checkpoint = open_checkpoint(proof.checkpoint, log)
        if checkpoint.size != proof.tree_size:
            raise ReceiptError("the receipt's tree size is not the checkpoint's")
        check_inclusion(
            proof.log_index,
            proof.tree_size,
            leaf_hash(proof.leaf),
            proof.hashes,
            checkpoint.root,
        )
        leaf = parse_leaf(proof.leaf)
    except ReceiptError:
        raise
    except LetheError as error:
        raise ReceiptError(f"the receipt does not hold: {error.detail}") from error
    if (leaf.kind, leaf.event, leaf.ref) != (ERASURE_EVENT, "request.received", receipt.ref):
        raise ReceiptError("the receipt proves another entry than this request's")
