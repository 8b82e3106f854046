"""Masks: y_u = x_u + PRG(b_u) + Σ_{v>u} PRG(k_uv) - Σ_{v<u} PRG(k_uv)  (mod 2^64).

Bonawitz et al., Practical Secure Aggregation (CCS 2017), section 4.0.1 for the pairwise masks
and 4.0.3 for the self mask b_u, which hides an input that arrives after its sender was
declared dropped and its pairwise masks were recovered.
"""

from collections.abc import Iterator

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from workers.secure_sum.keys import agree, derive
from workers.secure_sum.plan import RoundPlan
from workers.secure_sum.vector import Vector

CHUNK = 1 << 17  # entries, 1 MiB of key stream at a time


def pair_key(plan: RoundPlan, own: X25519PrivateKey, me: str, peer: str, key: bytes) -> bytes:
    """Return k_uv, the same for both members; `key` is the peer's advertised mask key."""
    first, second = sorted((me, peer))
    return derive(agree(own, key), plan, "pair mask", first, second)


def self_key(plan: RoundPlan, seed: bytes, member: str) -> bytes:
    """Return the key of a member's self mask."""
    return derive(seed, plan, "self mask", member)


def add_mask(vector: Vector, key: bytes, sign: int) -> None:
    """Add (+1) or subtract (-1) the mask of a 32-byte key, in place, modulo 2^64."""
    for part, mask in _chunks(vector, key):
        if sign > 0:
            part += mask
        else:
            part -= mask


def pair_sign(me: str, peer: str) -> int:
    """Return +1 for the first of the two by name, -1 for the other."""
    return 1 if me < peer else -1


def _chunks(vector: Vector, key: bytes) -> Iterator[tuple[Vector, Vector]]:
    # RFC 8439 key stream with counter and nonce zero: each key makes one mask, in one round.
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    for start in range(0, len(vector), CHUNK):
        part = vector[start : start + CHUNK]
        mask = np.frombuffer(stream.update(bytes(8 * len(part))), "<u8")
        yield part, mask.astype(np.uint64, copy=False)
