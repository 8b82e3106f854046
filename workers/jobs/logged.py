"""Versions as the log has them: whoever can change a table here cannot change that."""

from app.ledger.sequencer import Ledger
from app.reconcile.model_events import model_events
from lethe.log.entries import Leaf
from models import Model, ModelVersion
from workers.errors import RefusedError

VERSION = "model.version"


class NotLoggedError(RefusedError):
    """A table says otherwise of a version than the log."""


def versions_of(ledger: Ledger, model: Model) -> list[tuple[int, Leaf]]:
    """Return (index, leaf) of each version of a model: the first is version 1."""
    found = model_events(ledger, model.ref)
    return [(index, leaf) for index, leaf in found if leaf.event == VERSION]


def logged_leaf(ledger: Ledger, model: Model, version: ModelVersion) -> Leaf:
    """Return the log's entry of a version: the one of its number, and no other of its model.

    Raises NotLoggedError where the table's row points at another entry, or says otherwise.
    """
    known = versions_of(ledger, model)
    if not 1 <= version.number <= len(known):
        raise NotLoggedError("a version has no entry in the log")
    index, leaf = known[version.number - 1]
    if index != version.log_index:
        raise NotLoggedError("a version points at the entry of another one")
    said = {
        "head": version.head_digest,
        "statistics": version.statistics_digest,
        "retained": bytes(version.retained_root).hex(),
    }
    if said != {name: leaf.digests.get(name) for name in said}:
        raise NotLoggedError("the tables say otherwise of a version than the log")
    return leaf


def check_logged(ledger: Ledger, model: Model, *versions: ModelVersion) -> None:
    """Check that head, rows and retained set of versions are those that were published.

    Raises NotLoggedError where a table says otherwise than the version's entry.
    """
    for version in versions:
        logged_leaf(ledger, model, version)
