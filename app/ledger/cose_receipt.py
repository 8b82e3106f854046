"""COSE receipts (RFC 9942) of log entries, for SCITT verifiers (RFC 9943).

A COSE_Sign1 under the log's key, with the inclusion proof in the unprotected header and the
tree's root as the detached payload. A receipt adds no claim to the checkpoint: it signs only
the root of a checkpoint that a key of this log has signed already.
"""

import cbor2

from app.ledger.receipt import EntryReceipt
from lethe.log.log_keys import LogKeys
from lethe.log.note import NoteSigner
from lethe.log.proofs import check_inclusion
from lethe.log.tree import leaf_hash

MEDIA_TYPE = 'application/cose; cose-type="cose-sign1"'  # RFC 9052 section 2
COSE_SIGN1 = 18  # RFC 9052 table 1
ALG, KID, CWT_CLAIMS = 1, 4, 15  # RFC 9052 section 3.1, RFC 9597 section 2
ISSUER, SUBJECT = 1, 2  # claims of RFC 8392, which RFC 9943 section 6 demands
EDDSA = -8  # RFC 9053 section 2.2
VDS, VDP = 395, 396  # RFC 9942 section 4
RFC9162_SHA256, INCLUSION = 1, -1  # RFC 9942 section 5
# The first byte of a four-element array. It cannot begin UTF-8 text, so a receipt's signature
# is never valid for a checkpoint's note, nor a note's for a receipt.
ARRAY_OF_FOUR = 0x84


def sign_receipt(
    signer: NoteSigner, entry: EntryReceipt, subject: str, keys: LogKeys | None = None
) -> bytes:
    """Return the COSE receipt of a log entry; the same bytes every time.

    subject: a URI for what the entry is about. keys: all keys of the log, by default the
    signer's. Verifying a receipt takes the entry and the log's key.

    Raises NoteError, CheckpointError: the entry's checkpoint is not one that these keys signed;
    ProofError: its proof does not lead to the checkpoint's root.
    """
    checkpoint, _ = (keys or LogKeys.of(signer.verifier)).open(entry.checkpoint)
    check_inclusion(
        entry.log_index, checkpoint.size, leaf_hash(entry.leaf), entry.hashes, checkpoint.root
    )
    protected = _encode(
        {
            ALG: EDDSA,
            KID: signer.verifier.log_id,
            CWT_CLAIMS: {ISSUER: signer.name, SUBJECT: subject},
            VDS: RFC9162_SHA256,
        }
    )
    # RFC 9052 section 4.4: no external data, and the detached payload stands in its place.
    signed = _encode(["Signature1", protected, b"", checkpoint.root])
    assert signed[0] == ARRAY_OF_FOUR
    # RFC 9942 section 5.2.1: [tree size, leaf index, path].
    proof = _encode([checkpoint.size, entry.log_index, list(entry.hashes)])
    headers = {VDP: {INCLUSION: [proof]}}
    parts = [protected, headers, None, signer.key.sign(signed)]
    return _encode(cbor2.CBORTag(COSE_SIGN1, parts))


def _encode(value: object) -> bytes:
    return cbor2.dumps(value, canonical=True)  # RFC 8949 section 4.2
