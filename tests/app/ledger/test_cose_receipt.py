"""COSE receipts: verified by the unmodified scitt-cose and by a second reader, bit by bit."""

from dataclasses import replace

import cbor2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from scitt_cose import ReceiptResult, verify_receipt

from app.ledger.cose_receipt import sign_receipt
from app.ledger.receipt import EntryReceipt
from lethe.log.checkpoint import CheckpointError
from lethe.log.note import NoteError, sign_note
from lethe.log.proofs import ProofError
from lethe.signing.keys import public_pem
from tests.interop import cose_receipt
from tests.lethe.certificates.build import LocalLog, log_signer

SUBJECT = "urn:uuid:5f8d5c0e-6a53-4d0e-b7a4-0a6f0f9f2b11"
LOG = log_signer()


def entry(index: int = 4, size: int = 9, log: LocalLog | None = None) -> EntryReceipt:
    kept = log or LocalLog()
    while len(kept.leaves) < size:
        kept.append(b"entry %d" % len(kept.leaves))
    proof = tuple(kept.proof(index))
    return EntryReceipt(index, size, kept.leaves[index], proof, kept.checkpoint())


def key() -> Ed25519PublicKey:
    public = LOG.verifier.key
    assert isinstance(public, Ed25519PublicKey)
    return public


def scitt(receipt: bytes, leaf: bytes) -> ReceiptResult:
    return verify_receipt(
        receipt, leaf_entry_hex=leaf.hex(), log_public_key_pem=public_pem(key())
    )


@pytest.mark.parametrize(
    ("index", "size"), [(0, 1), (0, 2), (6, 7), (4, 9), (8, 9), (255, 300)]
)
def test_both_verify_any_place_of_the_log(index: int, size: int) -> None:
    one = entry(index, size)
    receipt = sign_receipt(LOG, one, SUBJECT)
    assert receipt == sign_receipt(LOG, one, SUBJECT)
    result = scitt(receipt, one.leaf)
    assert (result.ok, result.tree_size, result.leaf_index) == (True, size, index)
    assert (result.issuer, result.subject) == (LOG.name, SUBJECT)
    assert result.protected_header_ext == {4: LOG.verifier.log_id}
    header = cose_receipt.check(receipt, one.leaf, key())
    assert header is not None
    assert header[15] == {1: LOG.name, 2: SUBJECT}
    assert cose_receipt.check(receipt, one.leaf + b"!", key()) is None
    assert not scitt(receipt, one.leaf + b"!").ok


def test_no_changed_byte_is_accepted() -> None:
    one = entry()
    receipt = sign_receipt(LOG, one, SUBJECT)
    for place in range(len(receipt)):
        changed = bytearray(receipt)
        changed[place] ^= 1
        assert not scitt(bytes(changed), one.leaf).ok, place
        try:
            assert cose_receipt.check(bytes(changed), one.leaf, key()) is None, place
        except (ValueError, LookupError, TypeError):
            continue


def test_a_subject_is_not_tied_to_its_entry() -> None:
    """A limit of RFC 9942, of docs/threats-to-the-service.md: it signs subject and root alone."""
    one, other = entry(4), entry(5)
    protected, _, payload, signature = cbor2.loads(sign_receipt(LOG, one, SUBJECT)).value
    _, proof, *_ = cbor2.loads(sign_receipt(LOG, other, SUBJECT[:-1] + "2")).value
    parts = [protected, proof, payload, signature]
    result = scitt(cbor2.dumps(cbor2.CBORTag(18, parts), canonical=True), other.leaf)
    assert (result.ok, result.subject, result.leaf_index) == (True, SUBJECT, 5)


def test_only_a_root_that_the_log_signed_before_is_signed() -> None:
    one = entry()
    foreign = LocalLog(log_signer(seed=b"forger"))
    with pytest.raises(NoteError):
        sign_receipt(LOG, entry(log=foreign), SUBJECT)
    with pytest.raises(NoteError):
        sign_receipt(log_signer(seed=b"new"), one, SUBJECT)
    with pytest.raises(ProofError):
        sign_receipt(LOG, replace(one, leaf=b"another entry"), SUBJECT)
    with pytest.raises(CheckpointError):
        sign_receipt(LOG, replace(one, checkpoint=sign_note("no checkpoint\n", LOG)), SUBJECT)


def test_what_is_signed_is_no_note_text() -> None:
    _, (protected, _, _, _) = cose_receipt.decode(sign_receipt(LOG, entry(), SUBJECT))
    signed = b"\x84\x6aSignature1" + cose_receipt.bytestring(protected)
    with pytest.raises(UnicodeDecodeError):
        signed.decode()
