"""`python -m workers.demo.retrain ROWS.npz`: train from scratch, compare with a given head.

ROWS.npz holds features (n, d), labels (n,) and a head (bytes), of which only the configuration
is used for training. It prints the SHA-256 of the retrained head's file and the distance of the
given head from the solution (Frobenius norm). A retraining shares no state with the service.
"""

import sys
from hashlib import sha256
from itertools import pairwise

import numpy as np

from workers.arrays import Rows
from workers.artifacts import decode_head, encode_head
from workers.methods.ridge import base

BLOCK = 97  # rows; different from any block size of the service


def main(path: str) -> None:
    """Retrain on the rows in `path`; print digest and distance, with a space between."""
    with np.load(path, allow_pickle=False) as arrays:
        given, config = decode_head(arrays["head"].tobytes())
        codes, _ = config.quantiser.quantise(arrays["features"])
        labels = arrays["labels"].astype(np.int64)
    edges = [*range(0, len(labels), BLOCK), len(labels)]
    blocks = [Rows(codes[a:b], labels[a:b]) for a, b in pairwise(edges)]
    state = base.method_named("ridge-exact").refit(config, blocks).state
    left = given.astype(np.float64)
    for part in state.witness:  # their sum is the solution, to far below float64's step
        left = left - part
    digest = sha256(encode_head(state.head, config)).hexdigest()
    sys.stdout.write(f"{digest} {float(np.linalg.norm(left))!r}\n")


if __name__ == "__main__":
    main(sys.argv[1])
