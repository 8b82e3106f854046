"""The order of records in an audit, by hashes of their ids, and whose turn it may have been."""

import hashlib
from bisect import insort
from collections.abc import Collection, Iterable, Sequence


def purpose(seed: int) -> str:
    """Return what the targets of an audit are drawn for."""
    return f"audit-target|{seed}"


def first(purpose: str, records: Iterable[str], count: int) -> set[str]:
    """Return the records of the lowest ranks."""
    ranked = sorted(records, key=lambda record: rank_of(purpose, record))
    return set(ranked[:count])


def rank_of(purpose: str, record: str) -> bytes:
    """Return SHA-256 of purpose and record id."""
    return hashlib.sha256(f"{purpose}|{record}".encode()).digest()


def were_targets(
    seed: int, targets: int, trained: Sequence[str], some: Collection[str]
) -> set[str]:
    """Return which of `some` records may have been targets of any pair of an audit.

    trained: all records that are trained on, in the order in which they were stored, these
    included. A record was a target at most where fewer than `targets` of those stored before
    it rank before it: they were there whenever it was. Some that never were are returned too.
    """
    found: set[str] = set()
    lowest: list[bytes] = []  # the lowest ranks of those before, in their order
    for record in trained:
        rank = rank_of(purpose(seed), record)
        if len(lowest) == targets and rank > lowest[-1]:
            continue
        if record in some:
            found.add(record)
        insort(lowest, rank)
        del lowest[targets:]
    return found
