"""Judgements by chance, counted in the log: each could pass a model wrongly, and spends alpha.

A judgement begins with its entry, which commits to its seed before anybody can know what comes
of it. So a table that is emptied lowers no count, and a judgement that is begun again with
another seed, because the first came out badly, is counted as a second.
"""

import hashlib

from app.ledger.journal import record_model_event
from app.ledger.sequencer import Ledger, Transaction
from app.reconcile.model_events import model_events
from app.service.context import Services
from models import Model, ModelVersion
from workers.errors import RefusedError
from workers.jobs import checkpoints
from workers.jobs.case import Case
from workers.jobs.lease import Lease

JUDGING = "model.judging"


def draw_seed(services: Services, lease: Lease, case: Case) -> bytes:
    """Return the seed of a judgement, 32 bytes, which is in the log from the moment it exists.

    Raises LeaseLostError.
    """

    def log(tx: Transaction, seed: bytes) -> None:
        record_model_event(tx, case.model.ref, JUDGING, _entry(case.after, seed))

    return checkpoints.draw_once(services, lease, log)


def judged_before(ledger: Ledger, model: Model, after: ModelVersion, seed: bytes) -> int:
    """Return how many judgements by chance of a model the log has before that of this seed.

    Raises RefusedError if the log has none of this seed for this version.
    """
    entry = _entry(after, seed)
    begun = [leaf for _, leaf in model_events(ledger, model.ref) if leaf.event == JUDGING]
    for place, leaf in enumerate(begun):
        if dict(leaf.digests) == entry:
            return place
    raise RefusedError("the seed of this judgement is not the one that was logged")


def _entry(after: ModelVersion, seed: bytes) -> dict[str, str]:
    # The seed itself stands in the evidence: its digest finds the entry.
    return {"head": after.head_digest, "seed": hashlib.sha256(seed).hexdigest()}
