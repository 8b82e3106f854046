"""Candidate splits come from Philox, keyed by seed and tree and counted by the node's path.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), Philox4x64-10.
The key of a tree is the start of SHA-256(TAG | seed | tree), and the counter of a block is
(path, position, 0, 0). So a draw depends on nothing that can be erased, and a node draws the
same numbers whatever the history of its tree.
"""

from hashlib import sha256
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

TAG = b"lethe/forest/draws/v1\0"
WORDS = 4  # uint64 per block
Word = Any  # uint64

_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_M0, _M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_W0, _W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_ZERO = np.uint64(0)


def tree_key(seed: int, tree: int) -> NDArray[np.uint64]:
    """Return the key of a tree, two uint64; `seed` and `tree` are below 2^64."""
    digest = sha256(TAG + seed.to_bytes(8, "big") + tree.to_bytes(8, "big")).digest()
    return np.frombuffer(digest[:16], dtype="<u8").astype(np.uint64)


@njit(cache=True)
def multiply(a: Word, b: Word) -> tuple[Word, Word]:
    """Return the high and the low word of a product of two uint64."""
    a_low, a_high, b_low, b_high = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    low, one, other = a_low * b_low, a_low * b_high, a_high * b_low
    middle = (low >> _HALF) + (one & _LOW) + (other & _LOW)
    high = a_high * b_high + (one >> _HALF) + (other >> _HALF) + (middle >> _HALF)
    return high, (low & _LOW) | (middle << _HALF)


@njit(cache=True)
def below(word: Word, bound: int) -> Any:
    """Map a word to a number below `bound` (>= 1), uniform up to an error of bound / 2^64."""
    high, _ = multiply(word, np.uint64(bound))
    return np.int64(high)


@njit(cache=True)
def block(key: NDArray[np.uint64], path: int, position: int, out: NDArray[np.uint64]) -> None:
    """Write the four words of a block into `out[:4]`."""
    k0, k1 = key[0], key[1]
    c0, c1, c2, c3 = np.uint64(path), np.uint64(position), _ZERO, _ZERO
    for i in range(10):
        if i:
            k0, k1 = k0 + _W0, k1 + _W1
        high0, low0 = multiply(_M0, c0)
        high1, low1 = multiply(_M1, c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
    out[0], out[1], out[2], out[3] = c0, c1, c2, c3
