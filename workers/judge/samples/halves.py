"""Which reference model is trained on which row: half of the models per row, drawn by the seed.

The draw is a function of the verifier's seed, which did not exist when the judged model was
published, and of the salted digest of each row. So nobody can choose it, and anyone with the
scores file can repeat it. Each row is in exactly half of the models, rounded down: with coin
flips some of many rows would be in fewer than the two that LiRA needs.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from workers.judge.attacks.lira import FlagMatrix

LABEL = b"lethe/references/v1\0"


def halves(seed: bytes, models: int, rows: Sequence[bytes]) -> FlagMatrix:
    """Return (models, n) bool: which model is trained on which of n rows, by their digests."""
    included = np.zeros((models, len(rows)), dtype=np.bool_)
    prefix = LABEL + len(seed).to_bytes(4, "big") + seed
    for place, row in enumerate(rows):
        stream = hashlib.shake_256(prefix + row).digest(8 * models)
        order = np.argsort(np.frombuffer(stream, "<u8"), kind="stable")
        included[order[: models // 2], place] = True
    return included
