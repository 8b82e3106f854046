"""RFC 6962 section 2.1 as it is written: recursive, over whole lists of entries.

It shares no code with app.ledger, so it cannot share its mistakes.
"""

import hashlib
from collections.abc import Sequence
from functools import cache


def entries(size: int, seed: int = 0) -> tuple[bytes, ...]:
    return tuple(f"{seed}:{index}".encode() for index in range(size))


@cache
def mth(d: tuple[bytes, ...]) -> bytes:
    if not d:
        return hashlib.sha256(b"").digest()
    if len(d) == 1:
        return hashlib.sha256(b"\x00" + d[0]).digest()
    k = _split(len(d))
    return hashlib.sha256(b"\x01" + mth(d[:k]) + mth(d[k:])).digest()


def path(m: int, d: tuple[bytes, ...]) -> list[bytes]:
    if len(d) == 1:
        return []
    k = _split(len(d))
    if m < k:
        return [*path(m, d[:k]), mth(d[k:])]
    return [*path(m - k, d[k:]), mth(d[:k])]


def proof(m: int, d: tuple[bytes, ...]) -> list[bytes]:
    return _subproof(m, d, True)


def _subproof(m: int, d: tuple[bytes, ...], b: bool) -> list[bytes]:
    if m == len(d):
        return [] if b else [mth(d)]
    k = _split(len(d))
    if m <= k:
        return [*_subproof(m, d[:k], b), mth(d[k:])]
    return [*_subproof(m - k, d[k:], False), mth(d[:k])]


def _split(n: int) -> int:
    k = 1
    while k * 2 < n:
        k *= 2
    return k


class StrictReader:
    """Reads the complete subtrees of a tree, and fails on any node that is not one."""

    def __init__(self, d: Sequence[bytes]) -> None:
        self._entries = tuple(d)

    def __call__(self, level: int, index: int) -> bytes:
        start, end = index << level, (index + 1) << level
        assert 0 <= start < end <= len(self._entries), f"node {level}, {index} is not complete"
        return mth(self._entries[start:end])
