"""Leaves of retained sets."""

from collections.abc import Iterable

from lethe.certificates.retained_tree import NO_CONTENT, Leaf


def bare(commitments: Iterable[bytes]) -> list[Leaf]:
    """Return leaves for records that have no stored content."""
    return [(commitment, NO_CONTENT) for commitment in commitments]
