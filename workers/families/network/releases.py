"""How many versions a network's log has since its last training: what noise has to hide.

The entry of a version that was trained from its initial weights names them, `start`. It begins
a budget once the log has it as repeated, bit for bit: from then on nothing that was erased
before is in any weight. A training that nobody repeated may be anything, and hides nothing, so
there is no budget after it. Every other version is a release of what some method made.
"""

from app.ledger.sequencer import Ledger
from app.reconcile.model_events import model_events
from lethe.log.entries import Leaf
from models import Model, ModelVersion
from workers.errors import RefusedError
from workers.jobs.logged import VERSION, versions_of
from workers.jobs.versions import REPEATED

START = "start"  # digest in the entry of a version


class UnprovenTrainingError(RefusedError):
    """Since the last training that was repeated, another one was published that was not."""


def ordinal(ledger: Ledger, model: Model, before: ModelVersion | None = None) -> int:
    """Return how many versions the log has of a model, up to `before` and without it."""
    known = versions_of(ledger, model)
    return sum(before is None or index < before.log_index for index, _ in known)


def check_no_training(ledger: Ledger, model: Model, version: ModelVersion) -> None:
    """Check that a version of an unlearning method is not logged as a training.

    Raises RefusedError: it would begin a budget.
    """
    if any(START in leaf.digests for i, leaf in versions_of(ledger, model) if _is(version, i)):
        raise RefusedError("a version that is no training was logged as one")


def made(ledger: Ledger, model: Model, before: ModelVersion | None = None) -> int:
    """Return how many releases there were since the last repeated training, up to `before`.

    Raises UnprovenTrainingError where the log has no such training, or an unrepeated one since.
    """
    count, repeated = 0, set()
    for index, leaf in reversed(model_events(ledger, model.ref)):
        if before is not None and index >= before.log_index:
            continue
        if leaf.event == REPEATED:
            repeated.add(_what(leaf))
        elif leaf.event == VERSION and START not in leaf.digests:
            count += 1
        elif leaf.event == VERSION:
            if _what(leaf) in repeated:
                return count
            break
    raise UnprovenTrainingError("the last training of this model was repeated by nobody")


def _is(version: ModelVersion, index: int) -> bool:
    return index == version.log_index


def _what(leaf: Leaf) -> tuple[str | None, str | None]:
    return leaf.digests.get("head"), leaf.digests.get("statistics")
