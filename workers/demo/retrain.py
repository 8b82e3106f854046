"""`python -m workers.demo.retrain ROWS.npz`: train from scratch, print the head's SHA-256.

ROWS.npz holds features (n, d), labels (n,) and any head (bytes) of the same configuration,
which is all that is taken from it. A retraining shares no state with the service.
"""

import sys
from hashlib import sha256
from itertools import pairwise

import numpy as np

from workers.arrays import Rows
from workers.artifacts import decode_head, encode_head
from workers.methods import registry

BLOCK = 97  # rows; unlike any block size of the service


def main(path: str) -> None:
    """Retrain on the rows in `path` and print the digest of the head's file."""
    with np.load(path, allow_pickle=False) as arrays:
        _, config = decode_head(arrays["head"].tobytes())
        codes, _ = config.quantiser.quantise(arrays["features"])
        labels = arrays["labels"].astype(np.int64)
    edges = [*range(0, len(labels), BLOCK), len(labels)]
    blocks = [Rows(codes[a:b], labels[a:b]) for a, b in pairwise(edges)]
    state = registry.get("ridge-exact").refit(config, blocks).state
    sys.stdout.write(sha256(encode_head(state.head, config)).hexdigest() + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
