"""Keys of a token as the rest of the service sees them: they sign, and have a public half.

Every signature is verified before it leaves here. A token whose key is not that of the public
half, or that fails, must not have a checkpoint published that nobody accepts.
"""

from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256

import pkcs11
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePublicKey,
    EllipticCurveSignatureAlgorithm,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from pkcs11 import Attribute, KeyType, Mechanism, MechanismFlag, ObjectClass, Session
from pkcs11.types import SignMixin

from app.hsm import sessions
from app.hsm.errors import HsmError
from app.hsm.uri import KeyUri
from app.settings import Settings
from lethe.signing.keys import Algorithm, PublicKey

ED25519 = bytes.fromhex("06032b6570")  # id-Ed25519, RFC 8410 section 3
EDWARDS25519 = b"\x13\x0cedwards25519"  # curveName, PKCS #11 3.1 section 6.3.3
P256 = bytes.fromhex("06082a8648ce3d030107")  # secp256r1, RFC 5480 section 2.1.1.1
TYPES = {"ed25519": KeyType.EC_EDWARDS, "ecdsa-p256-sha256": KeyType.EC}
CURVES = {"ed25519": ED25519, "ecdsa-p256-sha256": P256}
# PKCS #11 3.1 section 4.9: generated there, never without CKA_SENSITIVE or with
# CKA_EXTRACTABLE. Only the token itself sets them.
NEVER_OUTSIDE = (Attribute.LOCAL, Attribute.ALWAYS_SENSITIVE, Attribute.NEVER_EXTRACTABLE)
PROBE = b"lethe: the two halves of a key belong together"  # no note, envelope or receipt
OTHERWISE = (
    "the token signs with another key than that of the public half, or wrongly: what it signed "
    "is dropped; restore the key in it"
)


class HsmEd25519:
    """An Ed25519 key in a token."""

    def __init__(self, settings: Settings, uri: KeyUri, public: Ed25519PublicKey) -> None:
        self._settings, self._uri, self._public = settings, uri, public

    def public_key(self) -> Ed25519PublicKey:
        """Return the public half."""
        return self._public

    def sign(self, data: bytes) -> bytes:
        """Return the signature, 64 bytes. Raises HsmError."""
        signature = _sign(self._settings, self._uri, data, Mechanism.EDDSA)
        return _checked(signature, lambda: self._public.verify(signature, data))


class HsmP256:
    """An ECDSA P-256 key in a token."""

    def __init__(self, settings: Settings, uri: KeyUri, public: EllipticCurvePublicKey) -> None:
        self._settings, self._uri, self._public = settings, uri, public

    def public_key(self) -> EllipticCurvePublicKey:
        """Return the public half."""
        return self._public

    def sign(self, data: bytes, signature_algorithm: EllipticCurveSignatureAlgorithm) -> bytes:
        """Return the signature over the SHA-256 of `data`, in DER. Raises HsmError."""
        assert isinstance(signature_algorithm.algorithm, SHA256)
        raw = _sign(self._settings, self._uri, sha256(data).digest(), Mechanism.ECDSA)
        half = len(raw) // 2  # r and s, PKCS #11 3.1 section 6.3.1
        r, s = int.from_bytes(raw[:half]), int.from_bytes(raw[half:])
        signature = encode_dss_signature(r, s)
        return _checked(
            signature, lambda: self._public.verify(signature, data, ECDSA(SHA256()))
        )


def open_key(settings: Settings, uri: KeyUri) -> HsmEd25519 | HsmP256:
    """Return the key that a URI names. The token is asked each time: a lost key is noticed.

    Raises:
        HsmError: It cannot be reached, or is neither an Ed25519 nor a P-256 key that signs.
    """
    public = sessions.call(settings, uri, lambda session: _public(session, uri))
    if isinstance(public, Ed25519PublicKey):
        return HsmEd25519(settings, uri, public)
    return HsmP256(settings, uri, public)


def generate(
    settings: Settings, uri: KeyUri, algorithm: Algorithm, *, unknown: bool = False
) -> None:
    """Make a pair in the token, under the URI's label, unless there is one.

    The private half is not extractable: it never leaves the token. Then the pair signs once:
    whoever had access to the token could have put another public half under the label.

    unknown: refuse a pair whose private half somebody may know.

    Raises:
        HsmError: The token cannot be reached, or makes no such key; the pair is refused, or its
            halves are of two keys.
    """

    def make(session: Session) -> None:
        with suppress(pkcs11.NoSuchKey):
            private = sessions.one(session, uri, ObjectClass.PRIVATE_KEY)
            if unknown and not _is_unknown(private):
                raise HsmError(
                    f"the token {uri.token} has a key {uri.object} already that was put there, "
                    "or could be copied from it, so somebody may know it: destroy it in the "
                    "token, or give another --to"
                )
            return
        with session.token.open(rw=True) as writing:  # logged in, as all sessions of a process
            curve = writing.create_domain_parameters(
                TYPES[algorithm], {Attribute.EC_PARAMS: CURVES[algorithm]}, local=True
            )
            curve.generate_keypair(
                id=uri.id or uri.object.encode(),
                label=uri.object,
                store=True,
                capabilities=MechanismFlag.SIGN | MechanismFlag.VERIFY,
                private_template={Attribute.SENSITIVE: True, Attribute.EXTRACTABLE: False},
            )

    sessions.call(settings, uri, make)
    made = open_key(settings, uri)
    if isinstance(made, HsmEd25519):
        made.sign(PROBE)
    else:
        made.sign(PROBE, ECDSA(SHA256()))


def _is_unknown(private: pkcs11.Object) -> bool:
    """Return whether a private half was generated in its token and never could leave it."""
    try:
        return all(private[one] is True for one in NEVER_OUTSIDE)
    except pkcs11.AttributeTypeInvalid:  # the token does not say
        return False


def _public(session: Session, uri: KeyUri) -> PublicKey:
    private, public = sessions.pair(session, uri)
    # The point is the value of an OCTET STRING, or, by other tokens, itself.
    with suppress(ValueError, pkcs11.AttributeTypeInvalid):
        # This asks the token, also for a key that was found before.
        kind = private[Attribute.KEY_TYPE]
        curve, point = bytes(public[Attribute.EC_PARAMS]), bytes(public[Attribute.EC_POINT])
        signs = isinstance(private, SignMixin)  # CKA_SIGN
        if signs and kind == KeyType.EC_EDWARDS and curve in (ED25519, EDWARDS25519):
            return Ed25519PublicKey.from_public_bytes(point[-32:])
        if signs and kind == KeyType.EC and curve == P256:
            return EllipticCurvePublicKey.from_encoded_point(SECP256R1(), point[-65:])
    raise HsmError(
        f"the key {uri.object} of the token {uri.token} is no Ed25519 or ECDSA "
        "P-256 key that may sign: name another, or allow it to sign"
    )


def _sign(settings: Settings, uri: KeyUri, data: bytes, mechanism: Mechanism) -> bytes:
    def sign(session: Session) -> bytes:
        private, _ = sessions.pair(session, uri)
        assert isinstance(private, SignMixin)
        return bytes(private.sign(data, mechanism=mechanism))

    return sessions.call(settings, uri, sign)


def _checked(signature: bytes, verify: Callable[[], None]) -> bytes:
    try:
        verify()
    except InvalidSignature:
        raise HsmError(OTHERWISE) from None
    return signature
