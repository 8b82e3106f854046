"""Gaussian noise from a secret key: unpredictable without the key, reproducible with it.

SHAKE-256 of a label, the key and a context is read as pairs (a, b) of little-endian 64-bit
integers; u = (⌊a/2^11⌋ + 1)·2^-53 and v = ⌊b/2^11⌋·2^-53 give √(-2 ln u)·cos 2πv and √(-2 ln
u)·sin 2πv (Box and Muller 1958). A simulation generator is not enough: its outputs reveal the
next ones. The context is the digest of the retained rows and the number of versions so far.
The digest alone can recur, when rows learned in between are erased, and the difference of two
releases with the same noise hides nothing.
"""

import hashlib
import secrets

import numpy as np
from numpy.typing import NDArray

from workers.errors import RefusedError

LABEL = b"lethe certified noise 1\x00"
COMMITMENT = b"lethe certified noise key 1\x00"
KEY_BYTES = 32


def new_key() -> bytes:
    """Return 32 secret random bytes of the operating system."""
    return secrets.token_bytes(KEY_BYTES)


def commitment(key: bytes) -> str:
    """Return the hex SHA-256 that may be published before the key is used."""
    return hashlib.sha256(COMMITMENT + _checked(key)).hexdigest()


def context_of(data: str, ordinal: int) -> str:
    """Return the context of a release, unique over the model's whole life."""
    return f"{data}|{ordinal}"


def gaussian(key: bytes, context: str, size: int) -> NDArray[np.float64]:
    """Return `size` numbers (size,) float64 of N(0, 1), at most 8.6 in absolute value."""
    pairs = (size + 1) // 2
    stream = hashlib.shake_256(LABEL + _checked(key) + context.encode()).digest(16 * pairs)
    words = np.frombuffer(stream, "<u8").reshape(pairs, 2) >> np.uint64(11)
    radius = np.sqrt(-2 * np.log((words[:, 0].astype(np.float64) + 1) * 2.0**-53))
    angle = 2 * np.pi * (words[:, 1].astype(np.float64) * 2.0**-53)
    both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    numbers: NDArray[np.float64] = both.ravel()[:size]
    return numbers


def _checked(key: bytes) -> bytes:
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise RefusedError("a noise key has 32 bytes")
    return key
