"""Counts from the log: releases since the last training, and judgements by samples.

The entry of a version trained from its initial weights names them, `start`. It begins a budget
once the log records its bit-for-bit repetition: from then on no weight depends on previously
erased rows. An unrepeated training may be anything and hides nothing, so there is no budget
after it. Every other version is a release by some method.
"""

import hashlib

from app.ledger.journal import record_model_event
from app.ledger.sequencer import Ledger
from app.ledger.transaction import Transaction
from app.reconcile.inputs import VERSION, versions_of
from app.reconcile.judgement import JUDGING
from app.reconcile.model_events import model_events
from lethe.log.entries import Leaf
from models import Model, ModelVersion
from workers.cases.case import ExecutedJob
from workers.errors import RefusedError
from workers.leases import checkpoints
from workers.leases.lease import JobContext
from workers.lineage.versions import REPEATED

START = "start"  # digest in the entry of a version


class UnprovenTrainingError(RefusedError):
    """Since the last repeated training, another was published that was not repeated."""


def ordinal(ledger: Ledger, model: Model, before: ModelVersion | None = None) -> int:
    """Return how many versions of a model the log has before the version `before`."""
    known = versions_of(ledger, model)
    return len(known) if before is None else known.before(before.log_index)


def check_no_training(ledger: Ledger, model: Model, version: ModelVersion) -> None:
    """Check that a version of an unlearning method is not logged as a training.

    Raises RefusedError, since it would begin a budget.
    """
    known = versions_of(ledger, model)
    place = known.before(version.log_index)
    own = known[place : place + 1]
    if any(START in leaf.digests for index, leaf in own if index == version.log_index):
        raise RefusedError("a version that is no training was logged as one")


def releases_since_training(
    ledger: Ledger, model: Model, before: ModelVersion | None = None
) -> int:
    """Return how many releases the log has between the last repeated training and `before`.

    Raises UnprovenTrainingError if the log has no such training, or an unrepeated one since.
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
    raise UnprovenTrainingError("nobody has repeated the last training of this model")


def _what(leaf: Leaf) -> tuple[str | None, str | None]:
    return leaf.digests.get("head"), leaf.digests.get("statistics")


def draw_seed(job: JobContext, case: ExecutedJob) -> bytes:
    """Return the seed of a judgement, 32 bytes, logged as soon as it exists.

    Raises LeaseLostError.
    """

    def log(tx: Transaction, seed: bytes) -> None:
        record_model_event(tx, case.model.ref, JUDGING, _entry(case.after, seed))

    return checkpoints.draw_once(job, log)


def judged_before(ledger: Ledger, model: Model, after: ModelVersion, seed: bytes) -> int:
    """Return how many judgements by chance the log has before the one with this seed.

    Raises RefusedError if the log has none with this seed for this version.
    """
    entry = _entry(after, seed)
    for place, (_, leaf) in enumerate(model_events(ledger, model.ref, JUDGING)):
        if dict(leaf.digests) == entry:
            return place
    raise RefusedError("the seed of this judgement is not the one that was logged")


def _entry(after: ModelVersion, seed: bytes) -> dict[str, str]:
    # The seed itself is in the evidence: its digest finds the entry.
    return {"head": after.head_digest, "seed": hashlib.sha256(seed).hexdigest()}
