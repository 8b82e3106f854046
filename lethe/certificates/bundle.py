"""The certificate file: a Sigstore bundle v0.3 with one log entry and one DSSE signature.

Sources: sigstore/protobuf-specs, sigstore_bundle.proto and sigstore_rekor.proto (protobuf
JSON: int64 are strings, bytes are base64), and rekor/v2/hashedrekord.proto for the entry.
The file is RFC 8785 canonical without a newline at its end, and each member that nothing
signs is pinned to one value, so that no bit of the file can change unnoticed.

The envelope is DSSE (secure-systems-lab/dsse, protocol.md, v1): one signature over a payload
and its type, verified before the payload is parsed. It is ECDSA P-256 over SHA-256 of the
pre-authentication encoding, in DER, because the unmodified Sigstore verifiers check that.
"""

from base64 import b64decode
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from lethe import canonical
from lethe.certificates import shape
from lethe.certificates.errors import EnvelopeError, ShapeError
from lethe.certificates.shape import Blob
from lethe.errors import LetheError
from lethe.log.checkpoint import open_checkpoint
from lethe.log.note import NoteVerifier
from lethe.log.proofs import check_inclusion
from lethe.log.tree import leaf_hash
from lethe.records import dataclass
from lethe.signing.keys import P256Key

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature (DER) and the name of the key that made it."""

    # securesystemslib looks the key up by keyid, so it is always present.
    keyid: str
    sig: Blob


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload of the in-toto type with exactly one signature."""

    payload: Blob
    payload_type: Literal["application/vnd.in-toto+json"]
    signatures: tuple[Signature]

    @property
    def signed(self) -> bytes:
        """The signed bytes."""
        return pae(self.payload_type, self.payload)


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the pre-authentication encoding; the lengths make (type, payload) unambiguous."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign_envelope(payload: bytes, key: P256Key, keyid: str) -> dict[str, Any]:
    """Return the JSON of an envelope of `payload` with one signature.

    Raises EnvelopeError if the key is not on P-256.
    """
    _need_p256(key.public_key())
    sig = key.sign(pae(PAYLOAD_TYPE, payload), ECDSA(SHA256()))
    envelope = Envelope(payload, PAYLOAD_TYPE, (Signature(keyid, sig),))
    return shape.write(envelope)


def check_envelope(envelope: Any, public_key: EllipticCurvePublicKey, keyid: str) -> bytes:
    """Verify an envelope (JSON) against this key and keyid, and return its payload.

    Raises ShapeError: not an envelope of exactly one signature in its one spelling;
    EnvelopeError: another keyid, or the signature does not verify.
    """
    parsed = shape.read(Envelope, envelope)
    check_signature(parsed, public_key, keyid)
    return parsed.payload


def check_signature(envelope: Envelope, public_key: EllipticCurvePublicKey, keyid: str) -> None:
    """Check the one signature of a parsed envelope.

    Raises EnvelopeError: another keyid, or the signature does not verify.
    """
    _need_p256(public_key)
    (signature,) = envelope.signatures
    if signature.keyid != keyid:
        raise EnvelopeError("the envelope names another key than the expected issuer's")
    try:
        public_key.verify(signature.sig, envelope.signed, ECDSA(SHA256()))
    except InvalidSignature:
        raise EnvelopeError(
            "the signature is not the issuer's over this payload: payload, signature or "
            "issuer key is another"
        ) from None


def _need_p256(key: EllipticCurvePublicKey) -> None:
    if not isinstance(key.curve, SECP256R1):
        raise EnvelopeError("the issuer key must be on P-256: create another issuer key")


MEDIA_TYPE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"
MAX_BUNDLE = 1 << 20  # bytes; a bundle with a hundred checks has about 30,000


@dataclass(frozen=True, slots=True)
class PublicKeyHint:
    """The name of the key that signed the envelope; the key itself must come from elsewhere."""

    hint: str


@dataclass(frozen=True, slots=True)
class LogId:
    """The log, by the SHA-256 whose first four bytes are the note key id."""

    key_id: bytes


@dataclass(frozen=True, slots=True)
class KindVersion:
    """The type of the log entry."""

    kind: Literal["hashedrekord"]
    version: Literal["0.0.2"]


@dataclass(frozen=True, slots=True)
class CheckpointNote:
    """The log's signed note, with the lines of its witnesses."""

    envelope: str


@dataclass(frozen=True, slots=True)
class InclusionProof:
    """RFC 6962 inclusion proof of the entry in the tree that the checkpoint signs."""

    log_index: int
    root_hash: bytes
    tree_size: int
    hashes: tuple[bytes, ...]
    checkpoint: CheckpointNote


@dataclass(frozen=True, slots=True)
class TlogEntry:
    """The certificate's entry in the log, with its proof."""

    log_index: int
    log_id: LogId
    kind_version: KindVersion
    # The log has no trusted time. With a value other than 0 the Sigstore verifiers would
    # require a signed timestamp.
    integrated_time: Literal["0"]
    inclusion_proof: InclusionProof
    canonicalized_body: Blob


@dataclass(frozen=True, slots=True)
class VerificationMaterial:
    """Everything that a verifier needs besides the two public keys."""

    public_key: PublicKeyHint
    tlog_entries: tuple[TlogEntry]


@dataclass(frozen=True, slots=True)
class Bundle:
    """A whole certificate file."""

    media_type: Literal["application/vnd.dev.sigstore.bundle.v0.3+json"]
    verification_material: VerificationMaterial
    dsse_envelope: Envelope

    @property
    def entry(self) -> TlogEntry:
        """The one log entry."""
        return self.verification_material.tlog_entries[0]

    @property
    def keyid(self) -> str:
        """The name of the issuer's key; `parse_bundle` checked that both places agree."""
        return self.verification_material.public_key.hint

    @property
    def payload(self) -> bytes:
        """The signed statement."""
        return self.dsse_envelope.payload


@dataclass(frozen=True, slots=True)
class _HashOutput:
    algorithm: Literal["SHA2_256"]
    digest: bytes


@dataclass(frozen=True, slots=True)
class _RawKey:
    raw_bytes: Blob


@dataclass(frozen=True, slots=True)
class _KeyVerifier:
    key_details: Literal["PKIX_ECDSA_P256_SHA_256"]
    public_key: _RawKey


@dataclass(frozen=True, slots=True)
class _EntrySignature:
    content: Blob
    verifier: _KeyVerifier


@dataclass(frozen=True, slots=True)
class _HashedRekord:
    data: _HashOutput
    signature: _EntrySignature


def hashedrekord_leaf(
    envelope: dict[str, Any], issuer_public_key: EllipticCurvePublicKey
) -> bytes:
    """Return the log entry of an envelope: a hashedrekord 0.0.2 body (RFC 8785 bytes).

    It holds the SHA-256 of the pre-authentication encoding, the envelope's signature and the
    issuer's public key, but never the payload. Raises ShapeError if the envelope does not have
    exactly one signature.
    """
    return leaf_of(shape.read(Envelope, envelope), issuer_public_key)


def leaf_of(envelope: Envelope, issuer_public_key: EllipticCurvePublicKey) -> bytes:
    """Return the log entry of a parsed envelope."""
    return _leaf(envelope, spki_of(issuer_public_key))


def spki_of(key: EllipticCurvePublicKey) -> bytes:
    """Return SubjectPublicKeyInfo in DER, the form of an issuer's key in log entries."""
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def issuer_named_by(leaf: bytes, envelope: Envelope) -> bytes | None:
    """Return the key (SubjectPublicKeyInfo) under which `leaf` is this envelope's log entry.

    None if more than the key differs. The key itself is not verified.
    """
    try:
        named = canonical.decode(leaf)["spec"]["hashedRekordV002"]["signature"]["verifier"]
        spki = b64decode(named["publicKey"]["rawBytes"], validate=True)
    except (LetheError, LookupError, TypeError, ValueError):
        return None
    return spki if _leaf(envelope, spki) == leaf else None


def _leaf(envelope: Envelope, spki: bytes) -> bytes:
    record = _HashedRekord(
        _HashOutput("SHA2_256", sha256(envelope.signed).digest()),
        _EntrySignature(
            envelope.signatures[0].sig, _KeyVerifier("PKIX_ECDSA_P256_SHA_256", _RawKey(spki))
        ),
    )
    return canonical.encode(
        {
            "apiVersion": "0.0.2",
            "kind": "hashedrekord",
            "spec": {"hashedRekordV002": shape.write(record)},
        }
    )


def build_bundle(
    envelope: dict[str, Any],
    *,
    issuer_keyid: str,
    leaf: bytes,
    index: int,
    proof: Sequence[bytes],
    checkpoint_note: str,
    log: NoteVerifier,
) -> bytes:
    """Return the certificate file of an envelope whose `leaf` is entry `index` of the log.

    Raises:
        ShapeError: The parts do not make a bundle that `parse_bundle` would accept.
        NoteError, CheckpointError: The note is not a checkpoint signed by `log`.
        ProofError: `proof` does not lead from the leaf to the checkpoint's root.
    """
    checkpoint = open_checkpoint(checkpoint_note, log)
    check_inclusion(index, checkpoint.size, leaf_hash(leaf), proof, checkpoint.root)
    bundle = Bundle(
        MEDIA_TYPE,
        VerificationMaterial(
            PublicKeyHint(issuer_keyid),
            (
                TlogEntry(
                    log_index=index,
                    log_id=LogId(log.log_id),
                    kind_version=KindVersion("hashedrekord", "0.0.2"),
                    integrated_time="0",
                    inclusion_proof=InclusionProof(
                        log_index=index,
                        root_hash=checkpoint.root,
                        tree_size=checkpoint.size,
                        hashes=tuple(proof),
                        checkpoint=CheckpointNote(checkpoint_note),
                    ),
                    canonicalized_body=leaf,
                ),
            ),
        ),
        shape.read(Envelope, envelope),
    )
    _check_consistent(bundle)
    return shape.encode(bundle)


def parse_bundle(data: bytes) -> Bundle:
    """Parse a certificate file; signatures and log proof are not verified yet.

    Raises NotCanonicalError: the bytes are not RFC 8785 canonical JSON; ShapeError: too large,
    a member missing, unknown, misspelled or not the pinned value, or two members that must
    agree differ.
    """
    if len(data) > MAX_BUNDLE:
        raise ShapeError(f"must not exceed {MAX_BUNDLE} bytes")
    bundle = shape.decode(Bundle, data)
    _check_consistent(bundle)
    return bundle


def _check_consistent(bundle: Bundle) -> None:
    # The outer index and the hint are not signed: each must equal its signed counterpart.
    if bundle.entry.log_index != bundle.entry.inclusion_proof.log_index:
        raise ShapeError("must be the same in both places", "logIndex")
    if bundle.keyid != bundle.dsse_envelope.signatures[0].keyid:
        raise ShapeError("must be the envelope's keyid", "verificationMaterial.publicKey.hint")
