"""Signatures inside the messages, with the key that signs a member's HTTP calls.

The signature of an HTTP call (RFC 9421) only reaches the service. A peer must not trust the
service about the keys it encrypts to, so each message carries its own signature.
"""

from collections.abc import Mapping

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from lethe import canonical
from lethe.weak_keys import is_weak
from workers.secure_sum.errors import ForgedMessageError, PlanError

# Ed25519 or ECDSA on P-256, as registered by `lethe.signing.keys`.
SigningKey = Ed25519PrivateKey | EllipticCurvePrivateKey
VerifyKey = Ed25519PublicKey | EllipticCurvePublicKey
Roster = Mapping[str, VerifyKey]  # by keyid

DOMAIN = b"lethe/masked-round/message/v1\0"  # unique among what these keys sign
SIGNATURE_BYTES = 64


def sign(key: SigningKey, data: bytes) -> bytes:
    """Return the 64-byte signature over `data`; of ECDSA, r || s (RFC 9421 section 3.3.4)."""
    if isinstance(key, Ed25519PrivateKey):
        return key.sign(DOMAIN + data)
    r, s = decode_dss_signature(key.sign(DOMAIN + data, ECDSA(SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def check(key: VerifyKey, data: bytes, signature: bytes) -> None:
    """Return if `sign` made the signature with the matching private key.

    Raises ForgedMessageError otherwise.
    """
    try:
        if len(signature) != SIGNATURE_BYTES:
            raise InvalidSignature
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, DOMAIN + data)
        else:
            r = int.from_bytes(signature[:32], "big")
            s = int.from_bytes(signature[32:], "big")
            key.verify(encode_dss_signature(r, s), DOMAIN + data, ECDSA(SHA256()))
    except InvalidSignature:
        raise ForgedMessageError(
            "a message is not signed by the member it names, or was changed on its way"
        ) from None


def read_roster(file: bytes) -> dict[str, VerifyKey]:
    """Return the public keys of a roster file. Raises PlanError if it is none."""
    try:
        document = canonical.loads(file)
    except (ValueError, RecursionError):
        raise PlanError(
            "the roster file is not JSON: `lethe round roster` writes one"
        ) from None
    return parse_roster(document)


def parse_roster(document: object) -> dict[str, VerifyKey]:
    """Return the public keys of a roster file's content: {keyid: PEM}.

    A member pins this file: it alone defines the peers, whatever the service claims. Raises
    PlanError if it is no roster.
    """
    roster: dict[str, VerifyKey] = {}
    if not isinstance(document, dict):
        raise PlanError(
            "the roster file must be a JSON object that gives each keyid's public "
            "key in PEM: `lethe round roster` writes one"
        )
    for keyid, pem in document.items():
        try:
            key = load_pem_public_key(pem.encode())
        except (AttributeError, ValueError, UnsupportedAlgorithm):
            raise PlanError(
                "the roster file has a value that is no public key in PEM: `lethe "
                "round roster` writes one"
            ) from None
        if isinstance(key, Ed25519PublicKey):
            good = not is_weak(key.public_bytes_raw())  # the service could sign as this member
        else:
            good = isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1)
        if not good or not isinstance(key, VerifyKey):
            raise PlanError(
                "the roster file has a key that is neither Ed25519 nor ECDSA P-256: "
                "get the member's registered key"
            )
        roster[keyid] = key
    return roster
