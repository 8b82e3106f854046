"""DSSE: one signature over a payload and its type, verified before the payload is parsed.

Source: secure-systems-lab/dsse, protocol.md (v1). The signature is ECDSA P-256 over SHA-256 of
the pre-authentication encoding, in DER, because that is what the unmodified Sigstore verifiers
check.
"""

from typing import Any, Final, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.hashes import SHA256

from lethe.certificates import shape
from lethe.certificates.errors import EnvelopeError
from lethe.certificates.shape import Blob
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
