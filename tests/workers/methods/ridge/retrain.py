"""Retrain from scratch in this process and print the SHA-256 of the head's file.

python -m tests.workers.methods.ridge.retrain ROWS.npz BLOCK_ROWS
"""

import sys
from hashlib import sha256

import numpy as np

from workers.arrays import Rows
from workers.artifacts import encode_head
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.canonical_head import canonical_head
from workers.methods.ridge.statistics.gram import accumulate


def main(path: str, block_rows: int) -> None:
    with np.load(path) as arrays:
        rows = Rows(arrays["codes"][::-1], arrays["labels"][::-1])
        d, c = rows.codes.shape[1], int(arrays["classes"])
        exponents = tuple(arrays["exponents"].tolist())
        config = RidgeConfig(d, c, exponents, 16, float(arrays["penalty"]))
    statistics = accumulate([rows], d, c, block_rows=block_rows)
    head = canonical_head(statistics, config).head
    sys.stdout.write(sha256(encode_head(head, config)).hexdigest())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
