"""The order of records in an audit, by hashes of their ids, and which may have been targets."""

import hashlib
from bisect import insort
from collections.abc import Collection, Iterable, Sequence


def purpose(seed: int) -> str:
    """Return the purpose of drawing the targets of an audit."""
    return f"audit-target|{seed}"


def first(purpose: str, records: Iterable[str], count: int) -> set[str]:
    """Return the records with the lowest ranks."""
    ranked = sorted(records, key=lambda record: rank_of(purpose, record))
    return set(ranked[:count])


def rank_of(purpose: str, record: str) -> bytes:
    """Return SHA-256 of purpose and record id."""
    return hashlib.sha256(f"{purpose}|{record}".encode()).digest()


def were_targets(
    seed: int, targets: int, trained: Sequence[str], some: Collection[str]
) -> set[str]:
    """Return which of `some` records may have been targets of any pair of an audit.

    trained: all records that are trained on, in the order in which they were stored, including
    these. A record can have been a target only if fewer than `targets` of the records stored
    before it rank before it: those were present whenever it was. The result may include records
    that never were targets.
    """
    found: set[str] = set()
    lowest: list[bytes] = []  # the lowest ranks of earlier records, in order
    for record in trained:
        rank = rank_of(purpose(seed), record)
        if len(lowest) == targets and rank > lowest[-1]:
            continue
        if record in some:
            found.add(record)
        insort(lowest, rank)
        del lowest[targets:]
    return found
