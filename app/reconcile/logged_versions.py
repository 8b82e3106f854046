"""A model's versions in the signed log, to compare the tables with.

Write access to the database can change the tables, but not the signed log. The log vouches for
a model's last version by a certificate, or as learned: an erasure's version that was refuted or
never judged may have any rows, since its digests are only a worker's claim. In the log, the
entries of the requests executed in a version directly follow the version's entry, in the same
transaction, so the log alone tells which they are.
"""

from app.ledger.pinned import digests_of
from app.ledger.sequencer import Ledger
from app.problems import UnloggedVersionError
from app.reconcile.judgement import CERTIFIED, ESCALATED, EXECUTED
from app.reconcile.model_events import KIND, REQUEST, model_events, signed_leaves
from app.reconcile.paged import ModelEvents
from lethe.log.entries import Leaf, parse_leaf
from models import Model, ModelVersion

VERSION = "model.version"


def versions_of(ledger: Ledger, model: Model) -> ModelEvents:
    """Return (index, leaf) of each version of a model, read on demand, from version 1 on."""
    return model_events(ledger, model.ref, VERSION)


def logged_leaf(ledger: Ledger, model: Model, version: ModelVersion) -> Leaf:
    """Return the log's entry of a version, found by its number.

    Raises UnloggedVersionError: the row points at another entry, or contradicts this one.
    """
    known = versions_of(ledger, model)
    if not 1 <= version.number <= len(known):
        raise UnloggedVersionError("a version has no entry in the log")
    index, leaf = known[version.number - 1]
    if index != version.log_index:
        raise UnloggedVersionError("a version points at the entry of another one")
    recorded = digests_of(version)
    if recorded != {name: leaf.digests.get(name) for name in recorded}:
        raise UnloggedVersionError("the tables and the log disagree on a version")
    return leaf


def is_withdrawn(ledger: Ledger, model: Model, number: int) -> bool:
    """Return whether a later version in the log withdrew all before it.

    Every version does that is not made by a contribution: an erasure, a refit or a mend.
    """
    later = versions_of(ledger, model)[number:]
    return any("added" not in leaf.digests for _, leaf in later)


def unwithdrawn(ledger: Ledger, model: Model, number: int) -> dict[int, Leaf]:
    """Return the versions before `number` that none of those withdrew, newest first."""
    known = versions_of(ledger, model)
    found: dict[int, Leaf] = {}
    for earlier in range(min(number - 1, len(known)), 0, -1):
        _, found[earlier] = known[earlier - 1]
        if "added" not in found[earlier].digests:
            break
    return found


# The entries that follow a version in its transaction if no erasure made it.
LEARNED = ("contribution.learned", "model.released")


def vouched_version(ledger: Ledger, ref: str) -> Leaf | None:
    """Return the log's last version of a model, None if nothing vouches for it.

    All leaves are read and hashed. Raises as `signed_leaves`.
    """
    entries = dict(signed_leaves(ledger, lambda data: KIND in data or REQUEST in data))
    leaves = {index: parse_leaf(data) for index, data in entries.items()}
    own = [index for index, leaf in leaves.items() if (leaf.event, leaf.ref) == (VERSION, ref)]
    if not own:
        return None
    last = own[-1]
    executed: set[str | None] = set()
    index = last + 1
    while (leaf := leaves.get(index)) is not None:
        index += 1
        if leaf.event == EXECUTED:
            executed.add(leaf.ref)
        elif leaf.event == ESCALATED or leaf.ref == ref:
            if leaf.event in LEARNED and not executed:
                return leaves[last]
        else:
            break
    certified = {
        leaf.ref for index, leaf in leaves.items() if index > last and leaf.event == CERTIFIED
    }
    return leaves[last] if executed and executed <= certified else None
