"""The requests of an update, and the records that each of them takes out."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Member:
    """One request of an update. `token` fences its job; `salts` are of its records.

    gone_before: how many of the records that it names were erased with another request.
    """

    job_id: str
    token: int
    request_id: str
    salts: dict[str, bytes]
    subjects: dict[str, int]
    gone_before: int = 0

    def owned(self) -> dict[int, set[str]]:
        """Return the member's records by the id of their subject."""
        owned: dict[int, set[str]] = {}
        for record, subject in self.subjects.items():
            owned.setdefault(subject, set()).add(record)
        return owned


def owned_by_subject(members: Sequence[Member]) -> dict[int, set[str]]:
    """Return the records that go, by the id of their subject."""
    owned: dict[int, set[str]] = defaultdict(set)
    for member in members:
        for subject, ids in member.owned().items():
            owned[subject] |= ids
    return owned
