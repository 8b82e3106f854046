"""A model's versions in the signed log, to compare the tables with.

Write access to the database can change the tables, but not the signed log.
"""

from app.ledger.pinned import digests_of
from app.ledger.sequencer import Ledger
from app.problems import UnloggedVersionError
from app.reconcile.model_events import model_events
from app.reconcile.paged import ModelEvents
from lethe.log.entries import Leaf
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
