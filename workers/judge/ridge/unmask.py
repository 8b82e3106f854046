"""The masks of a round, removed again from its signed messages alone.

Written from the protocol (Bonawitz et al., CCS 2017, figure 4), independently of the code that
unmasked the round first: keys by HMAC (RFC 5869), shares by interpolation over GF(2^128), masks
by the ChaCha20 key stream (RFC 8439).
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import combinations, islice
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)
from numpy.typing import NDArray

from workers.judge.ridge.claim import MaskedClaim

SIGNED = b"lethe/masked-round/message/v1\0"
DERIVED = b"lethe/masked-round/v1"
POLYNOMIAL = (1 << 128) | 0x87  # x^128 + x^7 + x^2 + x + 1
STEPS = ("advertise", "share", "masked", "statement", "confirm", "reveal")
TRIES = 64  # subsets of shares to try if a member sent wrong ones

Bodies = dict[str, dict[str, dict[str, Any]]]  # by step, by sender


class RefutedRoundError(ValueError):
    """The transcript does not support the claim. The message is for a certificate."""


def read_bodies(claim: MaskedClaim) -> Bodies:
    """Return the signed bodies of all messages. Raises RefutedRoundError."""
    digest = plan_digest(claim.plan).hex()
    try:
        keys = {name: load_pem_public_key(pem.encode()) for name, pem in claim.roster.items()}
    except (ValueError, UnsupportedAlgorithm):
        raise RefutedRoundError("the roster holds something that is no public key") from None
    bodies: Bodies = {step: {} for step in STEPS}
    for data in claim.messages:
        sender, step, body = _opened(claim, keys, digest, data)
        if sender in bodies[step]:
            raise RefutedRoundError("a member sent two messages for one step")
        bodies[step][sender] = body
        if step == "masked":
            author, kind, stated = _opened(claim, keys, digest, body["statement"].encode())
            if (author, kind) != (sender, "statement"):
                raise RefutedRoundError("an input carries somebody else's statement")
            bodies[kind][sender] = stated
    return bodies


def _opened(
    claim: MaskedClaim, keys: Mapping[str, object], digest: str, data: bytes
) -> tuple[str, str, dict[str, Any]]:
    """Return sender, step and body of a signed message."""
    document = json.loads(data)
    signature = base64.b64decode(document.pop("signature"), validate=True)
    sender, step, body = document["from"], document["step"], document["body"]
    if document["plan"] != digest or sender not in claim.plan["members"]:
        raise RefutedRoundError("a message belongs to another round")
    if not _signed(keys[sender], SIGNED + _canonical(document), signature):
        raise RefutedRoundError("a message is not signed by its sender")
    return sender, step, body


def _check_statements(plan: Mapping[str, Any], bodies: Bodies) -> None:
    """Raise RefutedRoundError unless members confirmed the same sums, and enough contribute."""
    stated = bodies["statement"]
    seen = {"advertised": bodies["advertise"], "peers": sorted(bodies["share"])}
    wanted = _digest_text(_canonical(seen))
    for name, body in bodies["masked"].items():
        data = base64.b64decode(body["vector"])
        said = (len(body["adds"]), len(body["releases"]), _digest_text(data), wanted)
        if tuple(stated[name][key] for key in ("added", "released", "input", "seen")) != said:
            raise RefutedRoundError("a statement is not about its sender's input")
    shown = _digest_text(_canonical(stated))
    confirmed = bodies["confirm"]
    if any(body["statements"] != shown for body in confirmed.values()):
        raise RefutedRoundError("members confirmed different sums")
    if not set(bodies["reveal"]) <= set(confirmed) <= set(stated):
        raise RefutedRoundError("a member revealed what it had not confirmed")
    if len(confirmed) < plan["threshold"]:
        raise RefutedRoundError("too few members confirmed whose inputs are in the sum")
    moved = [body["added"] + body["released"] for body in stated.values()]
    contributors = sum(number > 0 for number in moved)
    if contributors and (
        contributors < plan["least_contributors"] or sum(moved) < plan["least_rows"]
    ):
        raise RefutedRoundError("fewer members or records are in the sum than the plan asks")


def _digest_text(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def unmasked_sum(plan: Mapping[str, Any], bodies: Bodies) -> NDArray[np.int64]:
    """Return the sum of the inputs, a vector of integers. Raises RefutedRoundError."""
    advertised, masked = bodies["advertise"], bodies["masked"]
    shared, revealed = set(bodies["share"]), bodies["reveal"]
    if not set(revealed) <= set(masked) <= shared <= set(advertised):
        raise RefutedRoundError("a member came back into the round")
    if any(set(body["peers"]) != shared for body in masked.values()):
        raise RefutedRoundError("inputs were masked for different peers")
    _check_statements(plan, bodies)
    length = _length(plan)
    total = np.zeros(length, dtype=np.uint64)
    for name, body in masked.items():
        vector = np.frombuffer(base64.b64decode(body["vector"]), "<u8")
        if len(vector) != length:
            raise RefutedRoundError("a vector has not the length of the model")
        total += vector
        seed = _secret(plan, revealed, "self", name, _commits_to(plan, advertised[name], name))
        total -= _stream(_derive(plan, seed, "self mask", name), length)
    for gone in sorted(shared - set(masked)):
        seed = _secret(plan, revealed, "mask", gone, _opens(plan, advertised[gone], gone))
        key = X25519PrivateKey.from_private_bytes(_derive(plan, seed, "mask key", gone))
        for name in masked:
            peer = base64.b64decode(advertised[name]["mask"])
            agreed = key.exchange(X25519PublicKey.from_public_bytes(peer))
            first, second = min(name, gone), max(name, gone)
            mask = _stream(_derive(plan, agreed, "pair mask", first, second), length)
            total = total - mask if name == first else total + mask
    return total.view(np.int64)


def plan_digest(plan: Mapping[str, Any]) -> bytes:
    """Return the SHA-256 of the plan's canonical form."""
    return hashlib.sha256(_canonical(dict(plan))).digest()


def _length(plan: Mapping[str, Any]) -> int:
    d, c = int(plan["dimension"]), int(plan["classes"])
    return (d * d + d) // 2 + d * c + c + 1


def _secret(
    plan: Mapping[str, Any],
    revealed: Mapping[str, dict[str, Any]],
    kind: str,
    owner: str,
    fits: Callable[[bytes], bool],
) -> bytes:
    places = {name: place for place, name in enumerate(plan["members"], 1)}
    points = [
        (places[holder], int.from_bytes(base64.b64decode(body[kind][owner])))
        for holder, body in revealed.items()
    ]
    for subset in islice(combinations(sorted(points), plan["threshold"]), TRIES):
        secret = _at_zero(subset).to_bytes(16)
        if fits(secret):
            return secret
    raise RefutedRoundError("the shares do not make the secret that was advertised")


def _commits_to(
    plan: Mapping[str, Any], advertised: dict[str, Any], owner: str
) -> Callable[[bytes], bool]:
    wanted = base64.b64decode(advertised["commitment"])
    return lambda seed: _derive(plan, seed, "self mask commitment", owner) == wanted


def _opens(
    plan: Mapping[str, Any], advertised: dict[str, Any], owner: str
) -> Callable[[bytes], bool]:
    wanted = base64.b64decode(advertised["mask"])

    def fits(seed: bytes) -> bool:
        key = X25519PrivateKey.from_private_bytes(_derive(plan, seed, "mask key", owner))
        return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw) == wanted

    return fits


def _derive(plan: Mapping[str, Any], secret: bytes, purpose: str, *parties: str) -> bytes:
    """RFC 5869: extract, then the one block of expand that 32 bytes need."""
    parts = [DERIVED, purpose.encode(), *(party.encode() for party in parties)]
    info = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    extracted = hmac.digest(plan_digest(plan), secret, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")


def _stream(key: bytes, length: int) -> NDArray[np.uint64]:
    stream = Cipher(ChaCha20(key, b"\0" * 16), None).encryptor().update(b"\0" * (8 * length))
    return np.frombuffer(stream, "<u8")


def _at_zero(points: tuple[tuple[int, int], ...]) -> int:
    """Return the value at 0 of the polynomial through the points, by Lagrange."""
    total = 0
    for weight, (_, y) in zip(_weights(tuple(x for x, _ in points)), points, strict=True):
        total ^= _times(weight, y)
    return total


@lru_cache(maxsize=TRIES)  # the members who revealed are the same for each secret of a round
def _weights(places: tuple[int, ...]) -> tuple[int, ...]:
    """Return Lagrange's coefficients at 0 of values at these places."""
    weights = []
    for x in places:
        numerator, denominator = 1, 1
        for other in places:
            if other != x:
                numerator = _times(numerator, other)
                denominator = _times(denominator, x ^ other)
        weights.append(_times(numerator, _inverse(denominator)))
    return tuple(weights)


def _times(a: int, b: int) -> int:
    product = 0
    while b:
        if b & 1:
            product ^= a
        a <<= 1
        if a >> 128:
            a ^= POLYNOMIAL
        b >>= 1
    return product


def _inverse(a: int) -> int:
    """Fermat: a^(2^128 - 2)."""
    result = 1
    for _ in range(127):
        a = _times(a, a)
        result = _times(result, a)
    return result


def _signed(key: object, data: bytes, signature: bytes) -> bool:
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, data)
        elif isinstance(key, EllipticCurvePublicKey):
            r, s = (int.from_bytes(half) for half in (signature[:32], signature[32:]))
            key.verify(encode_dss_signature(r, s), data, ECDSA(SHA256()))
        else:
            return False
    except InvalidSignature:
        return False
    return True


def _canonical(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.encode()
