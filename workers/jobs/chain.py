"""The sets that lead from one version of a model to the next, as its certificates name them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lethe.certificates.retained import record_commitment
from workers.jobs import batch
from workers.jobs.members import Member
from workers.jobs.versions import RetainedSet


@dataclass(frozen=True, slots=True)
class Chain:
    """The sets between two versions, with a link for each member that erases.

    added: commitments that came in before the first link. roots: of the sets between, for the
    log.
    """

    links: list[batch.Link]
    added: list[bytes]
    roots: list[bytes]
    after: RetainedSet

    @classmethod
    def of(
        cls,
        members: Sequence[Member],
        retained: Collection[bytes],
        *,
        added: Sequence[bytes] = (),
        dropped: Sequence[bytes] = (),
    ) -> "Chain":
        """Return the chain from the set `retained`: `added` come first, `dropped` go last."""
        grown = sorted([*retained, *added])
        links = batch.prove(grown, list(members), dropped)
        gone = {
            record_commitment(salt, record)
            for member in members
            for record, salt in member.salts.items()
        }
        gone |= set(dropped)
        after = RetainedSet.of([value for value in grown if value not in gone])
        roots = [link.root for link in links]
        if not dropped:
            roots = roots[:-1]  # the last one is the version's own
        if added and links:
            roots.insert(0, RetainedSet.of(grown).root)
        return cls(links, list(added), roots, after)
