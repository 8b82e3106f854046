"""The two kinds of key that sign requests, in PEM; other kinds are refused by name.

Signatures over bytes are in the encoding of RFC 9421 and of WebCrypto: 64 bytes.
"""

from hashlib import sha256
from typing import Literal, Protocol

from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    EllipticCurveSignatureAlgorithm,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from lethe.signing.errors import KeyFormatError, SignatureInvalidError
from lethe.weak_keys import is_weak

Algorithm = Literal["ed25519", "ecdsa-p256-sha256"]  # names of RFC 9421 section 6.2.2
PrivateKey = Ed25519PrivateKey | EllipticCurvePrivateKey
PublicKey = Ed25519PublicKey | EllipticCurvePublicKey


class P256Key(Protocol):
    """A P-256 private key: one of `cryptography`, or one in a hardware device."""

    def sign(self, data: bytes, signature_algorithm: EllipticCurveSignatureAlgorithm) -> bytes:
        """Return the signature over `data`, in DER."""

    def public_key(self) -> EllipticCurvePublicKey:
        """Return the public half."""


REMEDY = "make an Ed25519 or ECDSA P-256 key with `lethe key new`"


def generate_key(algorithm: Algorithm = "ed25519") -> PrivateKey:
    """Return a fresh private key."""
    if algorithm == "ed25519":
        return Ed25519PrivateKey.generate()
    return generate_private_key(SECP256R1())


def algorithm_of(key: object) -> Algorithm:
    """Return the algorithm that a key signs with.

    Raises KeyFormatError: the key is of another kind or curve; the message names it.
    """
    match key:
        case Ed25519PrivateKey() | Ed25519PublicKey():
            return "ed25519"
        case EllipticCurvePrivateKey() | EllipticCurvePublicKey():
            if isinstance(key.curve, SECP256R1):
                return "ecdsa-p256-sha256"
            raise KeyFormatError(
                f"a key on the curve {key.curve.name} is not accepted: {REMEDY}"
            )
    kind = type(key).__name__.removesuffix("PrivateKey").removesuffix("PublicKey")
    raise KeyFormatError(f"a key of kind {kind} is not accepted: {REMEDY}")


def load_private_key(pem: bytes) -> PrivateKey:
    """Parse an unencrypted private key.

    Raises KeyFormatError: not PEM, encrypted, or a kind other than the two.
    """
    try:
        key = load_pem_private_key(pem, password=None)
    except TypeError:
        raise KeyFormatError(
            "the private key is encrypted: decrypt it first, `openssl pkey -in FILE`"
        ) from None
    except (ValueError, UnsupportedAlgorithm, InternalError):  # InternalError: an odd length
        raise KeyFormatError(f"the text is not a private key in PEM: {REMEDY}") from None
    algorithm_of(key)
    assert isinstance(key, PrivateKey)
    return key


def load_public_key(pem: bytes) -> PublicKey:
    """Parse a public key (PEM, SubjectPublicKeyInfo).

    Raises KeyFormatError: not such a PEM, a private key, a kind other than the two, or a key
    under which anybody signs.
    """
    if b"PRIVATE KEY" in pem:
        raise KeyFormatError(
            "the text holds a private key: send the public half, and replace this key, "
            "since whoever saw it can sign"
        )
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise KeyFormatError(f"the text is not a public key in PEM: {REMEDY}") from None
    algorithm_of(key)
    assert isinstance(key, PublicKey)
    if isinstance(key, Ed25519PublicKey) and is_weak(key.public_bytes_raw()):
        raise KeyFormatError(f"anybody can sign as this public key: {REMEDY}")
    return key


def public_of(key: PrivateKey | PublicKey) -> PublicKey:
    """Return the public half of a private key; a public key is returned as it is."""
    return key if isinstance(key, PublicKey) else key.public_key()


def private_pem(key: PrivateKey) -> str:
    """Return unencrypted PKCS #8 PEM; the caller must restrict the file to its owner."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def public_pem(key: PrivateKey | PublicKey) -> str:
    """Return SubjectPublicKeyInfo PEM, always in the same spelling for the same key."""
    return public_of(key).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def fingerprint(key: PrivateKey | PublicKey) -> str:
    """Return 16 hexadecimal digits of SHA-256(SubjectPublicKeyInfo), the default keyid.

    It identifies a key but does not authenticate it: a 64-bit collision can be constructed.
    That gains an attacker nothing here, because the service keeps the first key registered
    under a keyid.
    """
    spki = public_of(key).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return sha256(spki).hexdigest()[:16]


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
