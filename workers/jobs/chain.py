"""The requests of one update, and the retained sets between two versions.

The certificate of each request names its link of that chain.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from lethe.certificates import shape
from lethe.certificates.retained import Removal, prove_removal, record_commitment
from workers.jobs.versions import RetainedSet


@dataclass(frozen=True, slots=True)
class BatchMember:
    """One request of an update. `token` fences its job; `salts` are of its records.

    erased_before: how many of the records that it names were erased with another request.
    """

    job_id: str
    token: int
    request_id: str
    salts: dict[str, bytes]
    subjects: dict[str, int]
    erased_before: int = 0

    def owned(self) -> dict[int, set[str]]:
        """Return the member's records by the id of their subject."""
        owned: dict[int, set[str]] = {}
        for record, subject in self.subjects.items():
            owned.setdefault(subject, set()).add(record)
        return owned


def owned_by_subject(members: Sequence[BatchMember]) -> dict[int, set[str]]:
    """Return the records that go, by the id of their subject."""
    owned: dict[int, set[str]] = defaultdict(set)
    for member in members:
        for subject, ids in member.owned().items():
            owned[subject] |= ids
    return owned


@dataclass(frozen=True, slots=True)
class Link:
    """What one member removed: its proof, the root after it, and what the others removed."""

    removal: dict[str, Any]
    root: bytes
    earlier: list[bytes]
    later: list[bytes]


@dataclass(frozen=True, slots=True)
class Chain:
    """The sets between two versions, with a link for each member that erases.

    added: commitments that came in before the first link. roots: of the sets between, for the
    log.
    """

    links: list[Link]
    added: list[bytes]
    roots: list[bytes]
    after: RetainedSet

    @classmethod
    def of(
        cls,
        members: Sequence[BatchMember],
        retained: Collection[bytes],
        *,
        added: Sequence[bytes] = (),
        dropped: Sequence[bytes] = (),
    ) -> "Chain":
        """Return the chain from the set `retained`: `added` come first, `dropped` go last."""
        grown = sorted([*retained, *added])
        links = _prove(grown, list(members), dropped)
        removed = {
            record_commitment(salt, record)
            for member in members
            for record, salt in member.salts.items()
        }
        removed |= set(dropped)
        after = RetainedSet.of([value for value in grown if value not in removed])
        roots = [link.root for link in links]
        if not dropped:
            roots = roots[:-1]  # the last one is the version's own
        if added and links:
            roots.insert(0, RetainedSet.of(grown).root)
        return cls(links, list(added), roots, after)


def _prove(
    retained: list[bytes], members: list[BatchMember], dropped: Sequence[bytes] = ()
) -> list[Link]:
    """Return each member's link of the chain that starts at the sorted set `retained`.

    `dropped` are the commitments of records that nobody asked for and that go last.
    """
    removals = []
    for member in members:
        removals.append(prove_removal(retained, member.salts))
        own = {record_commitment(salt, record) for record, salt in member.salts.items()}
        retained = [value for value in retained if value not in own]
    read = [shape.read(Removal, removal) for removal in removals]
    removed = [[record.commitment for record in removal.records] for removal in read]
    return [
        Link(
            removals[position],
            read[position].after.root,
            [value for own in removed[:position] for value in own],
            [*(value for own in removed[position + 1 :] for value in own), *dropped],
        )
        for position in range(len(members))
    ]
