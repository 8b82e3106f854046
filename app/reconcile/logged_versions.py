"""A model's versions as the signed log has them, to compare the tables with.

Whoever can write to the database can change the tables, and not the log.
"""

from app.ledger.pinned import measured_digest
from app.ledger.sequencer import Ledger
from app.problems import UnloggedVersionError
from app.reconcile.model_events import model_events
from app.reconcile.paged import ModelEvents
from lethe.log.entries import Leaf
from models import Model, ModelVersion

VERSION = "model.version"


def versions_of(ledger: Ledger, model: Model) -> ModelEvents:
    """Return (index, leaf) of each version of a model, as needed: the first is version 1."""
    return model_events(ledger, model.ref, VERSION)


def logged_leaf(ledger: Ledger, model: Model, version: ModelVersion) -> Leaf:
    """Return the log's entry of a version: the one of its number, and no other of its model.

    Raises:
        UnloggedVersionError: The table's row points at another entry, or says otherwise.
    """
    known = versions_of(ledger, model)
    if not 1 <= version.number <= len(known):
        raise UnloggedVersionError("a version has no entry in the log")
    index, leaf = known[version.number - 1]
    if index != version.log_index:
        raise UnloggedVersionError("a version points at the entry of another one")
    recorded = {
        "head": version.head_digest,
        "statistics": version.statistics_digest,
        "retained": bytes(version.retained_root).hex(),
        "held-out": measured_digest(version),
    }
    if recorded != {name: leaf.digests.get(name) for name in recorded}:
        raise UnloggedVersionError("the tables and the log disagree on a version")
    return leaf
