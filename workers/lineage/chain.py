"""The requests of one update, and the retained sets between two versions.

The certificate of each request names its link of that chain.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import merge
from typing import Any

from sqlmodel import Session

from app.ledger.sequencer import Ledger
from app.retained_pages import RetainedSet, leaves, load
from app.schemas.requests import Scope
from lethe.canonical import parse_base64
from lethe.certificates.errors import RemovalError
from lethe.certificates.evidence import prove_removal
from lethe.certificates.retained_tree import Leaf, RetainedTree, folded_root, retained_root
from models import ErasureRequest, Job, Model, ModelVersion
from workers.lineage.logged import NotLoggedError, check_logged
from workers.lineage.versions import OtherModelError
from workers.updates.update import FreshRecords

# If a larger share of the set changes, all of it is read at once: reading a part costs a query.
SHARE = 64
STORED = (
    "nothing was published: the stored records, or the table retained_pages, are not the "
    "retained set of the model's version in the log; `lethe log fsck` names which, restore "
    "that table from a backup"
)


class RetainedSetError(OtherModelError):
    """The stored retained set is not that of the version: no version can be built on it."""

    def __init__(self) -> None:
        super().__init__(STORED)


def open_tree(
    ledger: Ledger, session: Session, model: Model, version: ModelVersion | None, changes: int
) -> RetainedTree:
    """Return the tree of a version's retained set; parts are read lazily in `session`.

    changes: how many records will be added or removed.

    Raises RetainedSetError: what is stored is not that set. For parts read later, the tree
    raises RemovalError instead.
    """
    if version is None:
        return RetainedTree()
    model_id = version.model_id
    check_set(ledger, model, version)
    root, count = bytes(version.retained_root), version.retained_count
    if changes * SHARE <= count:
        return RetainedTree.stored(root, count, lambda prefix: load(session, model_id, prefix))
    with stored_set():
        tree = RetainedTree(leaves(session, model_id))
    if (tree.root, tree.count) != (root, count):
        raise RetainedSetError
    return tree


def grown(
    ledger: Ledger,
    session: Session,
    model: Model,
    version: ModelVersion | None,
    added: FreshRecords,
) -> RetainedSet:
    """Return the retained set of a version with more records.

    Raises RetainedSetError if the stored set is not that of the version.
    """
    count = 0 if version is None else version.retained_count
    if version is not None and len(added) * SHARE <= count:
        tree = open_tree(ledger, session, model, version, len(added))
        with stored_set():
            for commitment, content in added.ascending():
                tree.add(commitment, content)
            return RetainedSet.left(tree)
    known: list[Leaf] = []
    if version is not None:
        check_set(ledger, model, version)
        known = list(leaves(session, version.model_id))
        with stored_set():
            if folded_root(known) != (bytes(version.retained_root), count):
                raise RetainedSetError
    fresh = added.ascending()
    return RetainedSet.of(merge(known, fresh) if known else fresh)


def check_set(ledger: Ledger, model: Model, version: ModelVersion) -> None:
    """Raise RetainedSetError if the version's row differs from the log."""
    try:
        check_logged(ledger, model, version)
    except NotLoggedError:
        raise RetainedSetError from None


@contextmanager
def stored_set() -> Iterator[None]:
    """Convert RemovalError to RetainedSetError: the tables contradict the log."""
    try:
        yield
    except RemovalError:
        raise RetainedSetError from None


@dataclass(frozen=True, slots=True)
class BatchMember:
    """One request of an update. `token` fences its job; `salts` are of its records.

    ref: the log's reference of the request. erased_before: how many of its records were erased
    with another request.
    """

    job_id: str
    token: int
    request_id: str
    ref: str
    salts: dict[str, bytes]
    subjects: dict[str, int]
    erased_before: int = 0

    @classmethod
    def of(
        cls,
        job: Job,
        request: ErasureRequest,
        records: Iterable[tuple[str, bytes, int]],
    ) -> "BatchMember":
        """Return the member of a request. records: id, salt and subject of each it removes."""
        found = list(records)
        named = Scope.model_validate(request.scope).records
        return cls(
            job.id,
            job.lease_token,
            request.id,
            request.ref,
            {record: salt for record, salt, _ in found},
            {record: subject for record, _, subject in found},
            0 if named is None else len(named) - len(found),
        )

    def owned(self) -> dict[int, set[str]]:
        """Return the member's records by the id of their subject."""
        owned: dict[int, set[str]] = {}
        for record, subject in self.subjects.items():
            owned.setdefault(subject, set()).add(record)
        return owned


def owned_by_subject(members: Sequence[BatchMember]) -> dict[int, set[str]]:
    """Return the records to erase, by the id of their subject."""
    owned: dict[int, set[str]] = defaultdict(set)
    for member in members:
        for subject, ids in member.owned().items():
            owned[subject] |= ids
    return owned


@dataclass(frozen=True, slots=True)
class Link:
    """What one member removed: its proof, the root after it, and what the others removed.

    earlier and later are the leaves removed by the members before and after it.
    """

    removal: dict[str, Any]
    root: bytes
    earlier: list[Leaf]
    later: list[Leaf]


@dataclass(frozen=True, slots=True)
class Chain:
    """The sets between two versions, with a link for each member that erases.

    added: leaves added before the first link, and added_root the root after them; a
    contribution has only the latter, since no request is executed with it. roots: of the sets
    in between, for the log.
    """

    links: list[Link]
    added: list[Leaf]
    added_root: bytes | None
    roots: list[bytes]
    after: RetainedSet

    @classmethod
    def of(
        cls,
        members: Sequence[BatchMember],
        tree: RetainedTree,
        *,
        added: Sequence[Leaf] = (),
        dropped: Sequence[bytes] = (),
    ) -> "Chain":
        """Return the chain from the set of `tree`: `added` join first, `dropped` leave last.

        The whole update changes one tree, and each record leaves it once.

        Raises RetainedSetError if the stored set is not that of the version.
        """
        with stored_set():
            for commitment, content in added:
                tree.add(commitment, content)
            grown = [tree.root] if added and members else []
            removals, roots = [], []
            for member in members:
                removals.append(prove_removal(tree, member.salts))
                roots.append(tree.root)
            last = [(commitment, tree.remove(commitment).content) for commitment in dropped]
            after = RetainedSet.left(tree)
        removed = [_leaves(removal) for removal in removals]
        links = [
            Link(
                removal,
                roots[position],
                _flat(removed[:position]),
                [*_flat(removed[position + 1 :]), *last],
            )
            for position, removal in enumerate(removals)
        ]
        # If nothing is dropped, the last root is the version's own.
        between = [*grown, *(roots if dropped else roots[:-1])]
        root = retained_root(added) if added and not members else None
        return cls(links, list(added), root, between, after)

    @classmethod
    def grown(cls, added: FreshRecords, after: RetainedSet) -> "Chain":
        """Return the chain of a contribution, which no request is executed with."""
        # For a first contribution, its root is that of the whole set.
        whole = len(added) == after.count
        root = after.root if whole else folded_root(added.ascending())[0]
        return cls([], [], root, [], after)


def _leaves(removal: Mapping[str, Any]) -> list[Leaf]:
    return [
        (parse_base64(record["commitment"]), parse_base64(record["path"]["content"]))
        for record in removal["records"]
    ]


def _flat(lists: Iterable[list[Leaf]]) -> list[Leaf]:
    return [leaf for own in lists for leaf in own]
