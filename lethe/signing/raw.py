"""Signatures over bytes, in the encoding of RFC 9421 and of WebCrypto: 64 bytes."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from lethe.signing.errors import SignatureInvalidError
from lethe.signing.keys import PublicKey

SIZE = 64  # bytes, for both algorithms


def check_raw(key: PublicKey, signature: bytes, data: bytes) -> None:
    """Check a signature by `key` over `data`: Ed25519, or ECDSA P-256 with SHA-256 (r || s).

    Raises SignatureInvalidError if it does not verify.
    """
    refused = SignatureInvalidError("the key did not sign this: sign it again")
    if len(signature) != SIZE:
        raise refused
    try:
        if isinstance(key, EllipticCurvePublicKey):
            r, s = (int.from_bytes(part) for part in (signature[:32], signature[32:]))
            key.verify(encode_dss_signature(r, s), data, ECDSA(SHA256()))
        else:
            key.verify(signature, data)
    except InvalidSignature:
        raise refused from None
