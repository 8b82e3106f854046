"""Checks a member's message as far as possible without unmasking.

An invalid message is refused at once: later it would fail the round for all members. Only the
worker can find out whether the masks cancel.
"""

import base64
import binascii
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from pydantic import ValidationError

from app.problems import (
    RoundForeignError,
    RoundForgedError,
    RoundLengthError,
    RoundMessageError,
)
from app.schemas.rounds import BODIES, MAX_MEMBERS, Advertised, Body, Kind, Signed
from lethe import canonical
from lethe.canonical import NotCanonicalError
from lethe.signing.keys import PublicKey

BESIDE = 1 << 24  # bytes of a message without its vector: 50,000 records with long ids
DOMAIN = b"lethe/masked-round/message/v1\0"  # as in workers.secure_sum.signing


@dataclass(frozen=True, slots=True)
class StepMessage:
    """A checked message: the bytes as sent, and its body."""

    data: bytes
    body: Body


def plan_digest(plan: dict[str, Any]) -> str:
    """Return the hex SHA-256 by which messages name their plan."""
    return sha256(canonical.encode(plan)).hexdigest()


def vector_length(plan: dict[str, Any]) -> int:
    """Return the length of a vector: upper triangle of G, C, label counts, n."""
    d, c = int(plan["dimension"]), int(plan["classes"])
    return d * (d + 1) // 2 + d * c + c + 1


def read_message(
    data: bytes, *, plan: dict[str, Any], step: Kind, keyid: str, key: PublicKey
) -> StepMessage:
    """Return a member's message for a step, checked without the other members' messages.

    Raises:
        RoundMessageError: Not canonical JSON of this step's shape, or it advertises keys with
            which no peer takes part.
        RoundForeignError: Of another round, step or member.
        RoundForgedError: The signature is not the member's.
        RoundLengthError: The vector does not have the plan's length, or the message is far
            longer than its vector.
    """
    # Checked before parsing: three bytes of JSON can take a hundred in memory.
    if len(data) > BESIDE + 4 * (8 * vector_length(plan) // 3 + 1):
        raise RoundLengthError(f"a message has at most {BESIDE} bytes beside its vector")
    try:
        document = canonical.decode(data)
        if _is_wide(document):
            raise NotCanonicalError("an object has more names than a round has members")
        signed = Signed.model_validate(document)
        body = BODIES[step].model_validate(signed.body) if signed.step == step else None
    except (ValidationError, NotCanonicalError, UnicodeDecodeError):
        raise RoundMessageError(
            "the message is not the canonical JSON of its step: send what the client wrote"
        ) from None
    if body is None or signed.from_ != keyid or signed.plan != plan_digest(plan):
        raise RoundForeignError("the message belongs to another round, step or member")
    unsigned = {name: value for name, value in document.items() if name != "signature"}
    _check_signature(key, canonical.encode(unsigned), decoded(signed.signature))
    for text in _texts(signed.body):
        decoded(text)
    if step == "masked" and len(decoded(signed.body["vector"])) != 8 * vector_length(plan):
        raise RoundLengthError(f"the vector must have {vector_length(plan)} entries")
    if isinstance(body, Advertised):
        _check_keys(decoded(body.cipher), decoded(body.mask))
    return StepMessage(data, body)


def _check_keys(cipher: bytes, mask: bytes) -> None:
    """Check X25519 keys as peers do, who would all leave the round (RFC 7748 section 6.1)."""
    own = X25519PrivateKey.generate()
    try:
        for key in (cipher, mask):
            own.exchange(X25519PublicKey.from_public_bytes(key))
    except ValueError:  # a point of small order
        cipher = mask
    if cipher == mask:
        raise RoundMessageError(
            "the message must advertise two different X25519 keys: send what the client wrote"
        )


def _is_wide(document: Any) -> bool:
    """Return whether an object has more names than any object of a message.

    pydantic would keep an error for each of them, and with it hundreds of bytes.
    """
    waiting = [document]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if len(item) > MAX_MEMBERS:
                return True
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return False


def _check_signature(key: PublicKey, message: bytes, signature: bytes) -> None:
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, DOMAIN + message)
        else:
            # RFC 9421 section 3.3.4: r || s, 32 bytes each.
            r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
            key.verify(encode_dss_signature(r, s), DOMAIN + message, ECDSA(SHA256()))
    except InvalidSignature:
        raise RoundForgedError(
            "the message's own signature is not this member's: sign it with the key that "
            "signs the call"
        ) from None


def decoded(text: str) -> bytes:
    """Return the bytes of canonical base64.

    Raises RoundMessageError: not base64, or not canonical.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if base64.b64encode(data).decode() != text:
        raise RoundMessageError(
            "the message has a value that is not canonical base64: send what the client wrote"
        )
    return data


def _texts(body: dict[str, Any]) -> list[str]:
    """Return every base64 text of a body, except the vector, whose length is checked.

    A statement is left out: it is a separate message.
    """
    found: list[str] = []
    for name, value in body.items():
        if isinstance(value, dict):
            found += value.values()
        elif isinstance(value, str) and name not in ("statement", "vector"):
            found.append(value)
    return found
