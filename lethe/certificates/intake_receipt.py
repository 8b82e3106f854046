"""The receipt of an erasure request from the intake page, and its verification.

The log's entry `case.intake` commits to a record of the case: how the person proved their
identity, and which key of their browser signed. The receipt holds that record, the opening of
the commitment, and the proof that the signed log holds the entry. Field by field:
docs/intake.md.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from lethe.certificates import shape
from lethe.certificates.errors import CertificateError
from lethe.certificates.shape import Blob, Moment, Sha256, Uuid
from lethe.errors import LetheError
from lethe.identity import normalise
from lethe.log.checkpoint import open_checkpoint
from lethe.log.entries import MODEL_EVENT, parse_leaf
from lethe.log.note import NoteVerifier
from lethe.log.proofs import check_inclusion
from lethe.log.tree import leaf_hash
from lethe.signing.keys import check_raw, load_public_key

RECEIPT_TYPE: Final = "https://w3id.org/lethe-ledger/intake-receipt/v1"
STATEMENT_TYPE: Final = "https://w3id.org/lethe-ledger/intake-statement/v1"
EVENT: Final = "case.intake"
Regulation = Literal["gdpr", "ccpa"]
Proven = Literal["code by e-mail", "code of an operator"]


class IntakeReceiptError(CertificateError):
    """A receipt of the intake page that does not verify."""

    slug, title = "intake-receipt-invalid", "The receipt is invalid"


@dataclass(frozen=True, slots=True)
class IntakeStatement:
    """The person's request; a key made in their browser signs its canonical JSON.

    person: HMAC-SHA256 of kind and value of the identity, keyed with the receipt's salt.
    """

    type: Literal["https://w3id.org/lethe-ledger/intake-statement/v1"]
    asks: Literal["erasure"]
    service: str
    person: Sha256
    regulation: Regulation
    at: Moment
    nonce: str


@dataclass(frozen=True, slots=True)
class BrowserSignature:
    """The browser's public key in PEM, and its signature (RFC 9421: 64 bytes)."""

    key: str
    signature: Blob


@dataclass(frozen=True, slots=True)
class IntakeRecord:
    """What the log commits to. entries: index of each part's `case.opened`, by model."""

    case: Uuid
    received_at: Moment
    due_at: Moment
    proven: Proven
    statement: IntakeStatement
    signed: BrowserSignature | None
    entries: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class IntakeEntry:
    """The log entry, its inclusion proof, and the signed checkpoint that the proof leads to."""

    log_index: int
    tree_size: int
    leaf: Blob
    hashes: tuple[bytes, ...]
    checkpoint: str


@dataclass(frozen=True, slots=True)
class IntakeReceipt:
    """The file. opening: the key of the commitment. salt: the key of `person`."""

    type: Literal["https://w3id.org/lethe-ledger/intake-receipt/v1"]
    record: IntakeRecord
    opening: bytes
    salt: bytes
    entry: IntakeEntry


def person_digest(salt: bytes, kind: str, value: str) -> str:
    """Return the digest that stands for a person in a statement. Raises as `normalise`."""
    said = f"{kind}={normalise(kind, value)}".encode()
    return hmac.digest(salt, said, "sha256").hex()


def record_commitment(opening: bytes, record: IntakeRecord) -> str:
    """Return the digest by which the log commits to a record."""
    return hmac.digest(opening, shape.encode(record), "sha256").hex()


def check_statement(statement: IntakeStatement, signed: BrowserSignature | None) -> None:
    """Check the key's signature over the statement, if there is one.

    Raises KeyFormatError: the key is not a public key; SignatureInvalidError: the signature
    does not verify.
    """
    if signed is not None:
        key = load_public_key(signed.key.encode())
        check_raw(key, signed.signature, statement_bytes(statement))


def check_receipt(data: bytes, log: NoteVerifier) -> IntakeReceipt:
    """Verify a receipt against the log's key, and return it.

    1. The file is a receipt in its one spelling.
    2. The log signed a tree that holds the entry, which opens a case of the intake page.
    3. The entry commits to the record.
    4. The key of the record, if it has one, signed the statement.

    Raises IntakeReceiptError; the message names the failed step.
    """
    try:
        receipt = shape.decode(IntakeReceipt, data)
        entry = receipt.entry
        checkpoint = open_checkpoint(entry.checkpoint, log)
        if checkpoint.size != entry.tree_size:
            raise IntakeReceiptError("the tree size is not the checkpoint's")
        check_inclusion(
            entry.log_index,
            entry.tree_size,
            leaf_hash(entry.leaf),
            entry.hashes,
            checkpoint.root,
        )
        leaf = parse_leaf(entry.leaf)
        if (leaf.kind, leaf.event) != (MODEL_EVENT, EVENT):
            raise IntakeReceiptError("the entry is not that of a case of the intake page")
        committed = record_commitment(receipt.opening, receipt.record)
        if leaf.digests.get("proof") != committed:
            raise IntakeReceiptError("the entry commits to another record")
        check_statement(receipt.record.statement, receipt.record.signed)
    except IntakeReceiptError:
        raise
    except LetheError as error:
        raise IntakeReceiptError(f"the receipt does not hold: {error.detail}") from error
    return receipt


def encode_receipt(receipt: IntakeReceipt) -> bytes:
    """Return the file: canonical JSON."""
    return shape.encode(receipt)


def record_document(record: IntakeRecord) -> dict[str, object]:
    """Return a record as JSON."""
    return shape.write(record)


def read_record(document: object) -> IntakeRecord:
    """Parse a record from JSON. Raises ShapeError if it is not one."""
    return shape.read(IntakeRecord, document)


def statement_bytes(statement: IntakeStatement) -> bytes:
    """Return the bytes that the browser's key signs."""
    return shape.encode(statement)
