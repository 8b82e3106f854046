"""The judge's own Merkle root, against RFC 6962's recursive definition."""

import hashlib

import pytest

from workers.verifier.retained_set import merkle_root

# The eight reference leaves of Certificate Transparency's own tests, and their root.
LEAVES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657"]
LEAVES += ["606162636465666768696a6b6c6d6e6f"]
ROOT = "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


def mth(leaves: list[bytes]) -> bytes:
    """RFC 6962 section 2.1, as written."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest()
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    return hashlib.sha256(b"\1" + mth(leaves[:split]) + mth(leaves[split:])).digest()


def test_the_known_answer() -> None:
    assert merkle_root([bytes.fromhex(leaf) for leaf in LEAVES]).hex() == ROOT


@pytest.mark.parametrize("size", [*range(20), 31, 32, 33, 100])
def test_equals_the_definition(size: int) -> None:
    leaves = [bytes([i]) * 32 for i in range(size)]
    assert merkle_root(leaves) == mth(leaves)
