"""Mend: refit a quarantined model from its rows and return it to service.

The result is not judged, just as a contribution's version is not. So it is made only from the
rows of a last version that a certificate or a contribution vouches for, by two logged digests:
of the retained set, and of the version's inputs. Any change to a row or a record since then
changes one of the digests. A refuted version vouches for nothing: its digests may cover rows
that should have been erased.
"""

from app.ledger.journal import record_model_event
from app.ledger.transaction import Transaction
from app.reconcile.logged_versions import versions_of
from app.reconcile.vouched import vouched_version
from app.retained_pages import RetainedSet, leaves
from app.steps import reached
from lethe.log.entries import Leaf
from workers.errors import RefusedError
from workers.families import base as family
from workers.jobs import publish
from workers.jobs.leases import checkpoints
from workers.jobs.leases.lease import JobContext, advance
from workers.jobs.model import held_out

LOST = (
    "the stored rows are not those of the last version in the log: restore them from a backup "
    "and mend the model again, or register the rows that are left as a new model"
)

UNVOUCHED = (
    "the last version in the log is of an erasure that has no certificate, so nothing says "
    "which rows are the right ones: register them as a new model"
)


def run(job: JobContext) -> None:
    """Publish the next version of a leased job's model and return the model to service.

    A restored database may lack versions that the log has: the next number comes after those.

    Raises:
        RefusedError: Nothing vouches for the log's last version, or the stored rows are not its
            rows, or cannot be fitted.
        OtherModelError: The model's row is not as it was registered.
        LeaseLostError: Another worker holds the job now.
    """
    services, lease, model = job.services, job.lease, job.model
    last = vouched_version(services.ledger, model.ref)
    if last is None:
        raise RefusedError(UNVOUCHED)
    with services.reading() as session:
        base = model.current_version
        retained = RetainedSet.of(leaves(session, lease.model_id))
    _require_same("retained", retained.root.hex(), last)
    result = family.of(model).refit(job)
    _require_same("statistics", result.encoded.statistics, last)
    measured = held_out.measure(job, result.encoded.head)
    reached("execute.computed")

    def effect(tx: Transaction) -> None:
        stored = publish.current(job, tx, base)
        again = RetainedSet.of(leaves(tx.session, lease.model_id))
        _require_same("retained", again.root.hex(), last)
        stored.current_version = len(versions_of(services.ledger, stored))
        publish.replace_refuted(job, tx, result, retained, [], measured)
        stored.state, stored.failure = "ready", None
        record_model_event(tx, stored.ref, "model.released", {})
        reached("execute.written")
        tx.session.flush()
        checkpoints.let_go(job, tx)
        advance(tx, lease, "done")

    services.ledger.transact(effect)


def _require_same(name: str, found: str, logged: Leaf) -> None:
    if logged.digests.get(name) != found:
        raise RefusedError(LOST)
