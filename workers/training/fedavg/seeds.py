"""Independent random streams from one seed, by hashing each one's purpose."""

import hashlib
import json

import numpy as np


def derive(seed: int, *purpose: str | int) -> int:
    """Return a seed (0 <= s < 2^63) for a purpose such as ("client", round, client id).

    Hashed, not added: seed 1 of round 2 is not seed 2 of round 1.
    """
    text = json.dumps([seed, *purpose]).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1


def stream(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return the random numbers of a purpose."""
    return np.random.Generator(np.random.PCG64(derive(seed, *purpose)))
