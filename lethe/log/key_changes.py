"""Log entries about the service's own keys: announced, rotated, revoked.

Each holds the whole public key, so that the log alone shows which key signed at which entry.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
)

from lethe.canonical import format_base64, parse_base64
from lethe.records import dataclass
from lethe.weak_keys import is_weak

ANNOUNCED: Final = "key.announced"
ROTATED: Final = "key.rotated"
REVOKED: Final = "key.revoked"
ISSUER: Final = "issuer"
LOG: Final = "log"
ML_DSA: Final = "log-mldsa"  # the log's second key
# Reason names of RFC 5280, section 5.3.1: free text could name a person, permanently.
REASONS = ("key-compromise", "superseded", "cessation-of-operation", "unspecified")
MASTER_ROTATED: Final = "master-key.rotated"
MASTER_REVOKED: Final = "master-key.revoked"
_KEYID = re.compile(r"[A-Za-z0-9._-]{1,80}")
_MASTER_KEYID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One event of a key of `role`: ISSUER, LOG or ML_DSA.

    `key` is its SubjectPublicKeyInfo in DER; `keyid` its name, for a log's key its key id.
    `replaces` is the key that a rotation replaces, `reason` one of REASONS for a revocation;
    None in the other events.
    """

    event: str
    keyid: str
    key: bytes
    role: str = ISSUER
    replaces: bytes | None = None
    reason: str | None = None

    def members(self) -> dict[str, str]:
        """Return the members of its log entry.

        Raises ValueError: a field does not have the allowed format.
        """
        if self.role not in _LOADERS or not _KEYID.fullmatch(self.keyid):
            raise ValueError("a key of an entry is the issuer's or the log's, of a simple name")
        load = _LOADERS[self.role]
        load(self.key)
        found = {"event": self.event, "role": self.role, "keyid": self.keyid}
        found["publicKey"] = format_base64(self.key)
        if self.event == ROTATED and self.replaces is not None:
            load(self.replaces)
            found["replaces"] = format_base64(self.replaces)
        elif self.event == REVOKED and self.reason in REASONS:
            found["reason"] = self.reason
        elif self.event != ANNOUNCED or (self.replaces, self.reason) != (None, None):
            raise ValueError("an event of a key has the fields of its kind alone")
        return found


def key_change(members: Mapping[str, Any]) -> KeyChange:
    """Parse the result of `KeyChange.members`.

    Raises LookupError, TypeError or ValueError: other members, or one in another format.
    """
    replaces = members.get("replaces")
    change = KeyChange(
        members["event"],
        members["keyid"],
        parse_base64(members["publicKey"]),
        members["role"],
        None if replaces is None else parse_base64(replaces),
        members.get("reason"),
    )
    if change.members() != members:
        raise ValueError("not the members of an event of a key")
    return change


@dataclass(frozen=True, slots=True)
class MasterKeyChange:
    """One event of a master key, which is secret: `keyid`, 16 hex digits, is a random name.

    A name derived from the key would let readers of the log test guesses of the key.

    `replaces` is the name of the key that a rotation replaces, `reason` one of REASONS for a
    revocation; None in the other event.
    """

    event: str
    keyid: str
    replaces: str | None = None
    reason: str | None = None

    def members(self) -> dict[str, str]:
        """Return the members of its log entry.

        Raises ValueError: a field does not have the allowed format.
        """
        if not _MASTER_KEYID.fullmatch(self.keyid):
            raise ValueError("a master key's name is 16 hex digits")
        found = {"event": self.event, "keyid": self.keyid}
        if self.event == MASTER_ROTATED and self.reason is None:
            if self.replaces is None or not _MASTER_KEYID.fullmatch(self.replaces):
                raise ValueError("a rotation names the master key that it ends")
            return {**found, "replaces": self.replaces}
        if self.event == MASTER_REVOKED and self.replaces is None and self.reason in REASONS:
            return {**found, "reason": self.reason}
        raise ValueError("an event of a master key has the fields of its kind alone")


def master_key_change(members: Mapping[str, Any]) -> MasterKeyChange:
    """Parse the result of `MasterKeyChange.members`.

    Raises LookupError, TypeError or ValueError: other members, or one in another format.
    """
    change = MasterKeyChange(
        members["event"], members["keyid"], members.get("replaces"), members.get("reason")
    )
    if change.members() != members:
        raise ValueError("not the members of an event of a master key")
    return change


def load_p256(spki: bytes) -> EllipticCurvePublicKey:
    """Return the ECDSA P-256 key of a canonical DER SubjectPublicKeyInfo. Raises ValueError."""
    wrong = "an issuer's key is an ECDSA P-256 key"
    key: EllipticCurvePublicKey = _load(spki, EllipticCurvePublicKey, wrong)
    if not isinstance(key.curve, SECP256R1):
        raise ValueError(wrong)
    return key


def load_ed25519(spki: bytes) -> Ed25519PublicKey:
    """Return the Ed25519 key of a canonical DER SubjectPublicKeyInfo. Raises ValueError."""
    wrong = "a log's key is an Ed25519 key"
    key: Ed25519PublicKey = _load(spki, Ed25519PublicKey, wrong)
    if is_weak(key.public_bytes_raw()):
        raise ValueError(wrong)
    return key


def load_ml_dsa(spki: bytes) -> MLDSA44PublicKey:
    """Return the ML-DSA-44 key of such an SPKI (RFC 9881). Raises ValueError."""
    wrong = "a log's second key is an ML-DSA-44 key"
    key: MLDSA44PublicKey = _load(spki, MLDSA44PublicKey, wrong)
    return key


def _load(spki: bytes, kind: type[Any], wrong: str) -> Any:  # mypy: the classes are abstract
    try:
        key = load_der_public_key(spki)
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError(wrong) from None
    if not isinstance(key, kind) or (
        key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) != spki
    ):
        raise ValueError(wrong)
    return key


_LOADERS: dict[str, Callable[[bytes], object]] = {
    ISSUER: load_p256,
    LOG: load_ed25519,
    ML_DSA: load_ml_dsa,
}
