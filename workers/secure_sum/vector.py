"""Statistics as one vector of integers modulo 2^64, where masks are uniform and cancel.

An int64 and its two's complement are the same 64 bits, so sums modulo 2^64 are the sums of
the integers, bit for bit, as long as those fit int64, which `statistics.gram` checks.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from workers.arrays import IntMatrix
from workers.secure_sum.errors import WrongLengthError
from workers.secure_sum.keys import agree, derive
from workers.secure_sum.plan import RoundPlan

Vector = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """gram (d, d) symmetric, moment (d, c), counts (c,) of the labels, all int64; rows n.

    A member's sums are its added rows less its released ones: rows and counts may be
    negative.
    """

    gram: IntMatrix
    moment: IntMatrix
    counts: NDArray[np.int64]
    rows: int


def to_vector(sums: Sums) -> Vector:
    """Return upper triangle of G by rows, C by rows, counts, n: (d(d+1)/2 + dc + c + 1,).

    Raises WrongLengthError if the parts are of different shapes, or G is not symmetric.
    """
    d, c = sums.moment.shape
    if sums.gram.shape != (d, d) or sums.counts.shape != (c,):
        raise WrongLengthError("gram, moment and counts have shapes of different models")
    if not np.array_equal(sums.gram, sums.gram.T):
        raise WrongLengthError("gram must be symmetric, since only its upper triangle is sent")
    parts = [
        sums.gram[np.triu_indices(d)],
        sums.moment.ravel(),
        sums.counts,
        np.array([sums.rows], dtype=np.int64),
    ]
    return np.concatenate(parts).astype(np.int64).view(np.uint64)


def from_vector(vector: Vector, dimension: int, classes: int) -> Sums:
    """Return the sums of a vector; the inverse of `to_vector`.

    Raises WrongLengthError if the vector belongs to another shape.
    """
    d, c = dimension, classes
    triangle = d * (d + 1) // 2
    if vector.dtype != np.uint64 or vector.shape != (triangle + d * c + c + 1,):
        raise WrongLengthError(
            f"the vector must have {triangle + d * c + c + 1} entries, as the "
            "round's model needs"
        )
    entries = vector.view(np.int64)
    gram = np.zeros((d, d), dtype=np.int64)
    upper = np.triu_indices(d)
    gram[upper] = entries[:triangle]
    gram.T[upper] = gram[upper]
    moment = entries[triangle : triangle + d * c].reshape(d, c).copy()
    return Sums(gram, moment, entries[-c - 1 : -1].copy(), int(entries[-1]))


def without_sign(vector: Vector, added: int, released: int) -> tuple[bytes, bool]:
    """Return the vector or its negative, the same for both, and whether it is the negative.

    added, released: the numbers of records behind it, which the negative has exchanged.
    """
    own, other = (one.astype("<u8").tobytes() for one in (vector, np.negative(vector)))
    negated = other < own if added == released else added < released
    return (other, True) if negated else (own, False)


# Masks: y_u = x_u + PRG(b_u) + Σ_{v>u} PRG(k_uv) - Σ_{v<u} PRG(k_uv)  (mod 2^64).
#
# Bonawitz et al., Practical Secure Aggregation (CCS 2017), section 4.0.1 for the pairwise masks
# and 4.0.3 for the self mask b_u, which hides an input that arrives after its sender was
# declared dropped and its pairwise masks were recovered.
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
