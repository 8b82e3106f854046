"""The tree of a retained set by its definition: bit after bit, over texts of 0 and 1."""

from collections.abc import Mapping
from hashlib import sha256

TAG = b"lethe/retained-set/v2\x00"


def oracle_root(leaves: Mapping[bytes, bytes]) -> bytes:
    """Return the root of {commitment: content}, sharing no code with the library."""
    if not leaves:
        return sha256(b"\x02" + TAG).digest()
    digits = {format(int.from_bytes(one), "0256b"): one for one in leaves}
    return _node({text: (one, leaves[one]) for text, one in digits.items()}, 0)


def _node(leaves: dict[str, tuple[bytes, bytes]], bit: int) -> bytes:
    if len(leaves) == 1:
        ((commitment, content),) = leaves.values()
        return sha256(b"\x00" + TAG + commitment + content).digest()
    zeros = {text: leaf for text, leaf in leaves.items() if text[bit] == "0"}
    ones = {text: leaf for text, leaf in leaves.items() if text[bit] == "1"}
    if not zeros or not ones:
        return _node(leaves, bit + 1)
    numbers = bit.to_bytes(2) + len(leaves).to_bytes(8)
    below = _node(zeros, bit + 1) + _node(ones, bit + 1)
    return sha256(b"\x01" + TAG + numbers + below).digest()


def bare_root(commitments: list[bytes]) -> bytes:
    """Return the root of records of which nothing is stored."""
    return oracle_root(dict.fromkeys(commitments, bytes(32)))


def step_by_step(
    commitment: bytes, content: bytes, steps: list[tuple[int, int, bytes]]
) -> tuple[bytes, int]:
    """Return root and count above a leaf, as a path's steps say."""
    count, node = 1, sha256(b"\x00" + TAG + commitment + content).digest()
    digits = format(int.from_bytes(commitment), "0256b")
    for bit, beside, other in steps:
        count += beside
        below = node + other if digits[bit] == "0" else other + node
        numbers = bit.to_bytes(2) + count.to_bytes(8)
        node = sha256(b"\x01" + TAG + numbers + below).digest()
    return node, count
