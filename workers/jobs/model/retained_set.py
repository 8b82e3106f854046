"""The retained set of a model: the stored tree of its version, and that of the next one."""

from collections.abc import Iterator
from contextlib import contextmanager
from heapq import merge

from sqlmodel import Session

from app.ledger.sequencer import Ledger
from app.retained_pages import RetainedSet, leaves, load
from lethe.certificates.errors import RemovalError
from lethe.certificates.retained_tree import Leaf, RetainedTree, folded_root
from models import Model, ModelVersion
from workers.jobs.model.logged import NotLoggedError, OtherModelError, check_logged
from workers.jobs.update import FreshRecords

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
        """Set the reason that people read."""
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
