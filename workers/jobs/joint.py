"""Publish what a family's own job computed: records that join, and erasures that waited for it.

The leased job is neither a contribution nor a request; the requests of the parked jobs that it
executes are verified each at its own turn.
"""

import secrets

from app.ledger.transaction import Transaction
from app.reconcile.people import PeopleChangedError
from app.service.desk import people
from app.service.queue import PARKED
from app.steps import reached
from lethe.certificates.evidence import SALT_SIZE
from models.database.session import chunks
from workers.errors import RefusedError
from workers.families.base import OwnJob
from workers.jobs import held_out, publish
from workers.leases.lease import JobContext, advance
from workers.lineage import versions
from workers.lineage.chain import Chain, open_tree
from workers.updates.update import FreshRecords, Owner, as_digests


def run(job: JobContext, own: OwnJob) -> None:
    """Compute and publish the update of a family's own job, and pass its erasures on.

    Raises:
        RefusedError: The family declined, an added record is a held-out row, or the model's row
            was changed meanwhile. Nothing was changed.
        LeaseLostError: Another worker holds the job now.
    """
    import numpy as np  # keeps numpy out of a worker's start

    services, lease = job.services, job.lease
    found = own.run(job)
    drawn = secrets.token_bytes(SALT_SIZE * len(found.owners))
    fresh = FreshRecords.salted(list(found.owners), as_digests(drawn))
    changes = len(fresh) + sum(len(member.salts) for member in found.members)
    with services.reading() as session:
        tree = open_tree(services.ledger, session, job.model, found.before, changes)
        chain = Chain.of(found.members, tree, added=list(fresh.ascending()))
    measured = held_out.measure(job, found.update.result.encoded.head, found.members)
    if measured.before is not None and not found.owners.keys().isdisjoint(
        measured.before.records
    ):
        raise RefusedError("a record id is that of a registered held-out row: use new ids")
    reached("execute.computed")

    def effect(tx: Transaction) -> None:
        session = tx.session
        model = publish.unchanged(job, tx, found.base)
        subject_of: dict[Owner, int] = {}
        for owners in chunks(sorted(set(found.owners.values()))):
            rows = versions.named_subjects(session, lease.model_id, owners)
            subject_of.update(
                (owner, row.id or 0) for owner, row in zip(owners, rows, strict=True)
            )
        subjects = np.array(
            [subject_of[owner] for owner in found.owners.values()], dtype=np.int64
        )
        versions.add_records(session, lease.model_id, fresh, subjects, keep_order=False)
        if found.people:
            try:
                people.require_sums(services, tx, model)
            except PeopleChangedError as error:
                raise RefusedError(f"{error.slug}: {error}") from error
            people.add(services, tx, model, found.people)
        shredded = found.destroy_before(tx)
        publish.publish(
            job,
            tx,
            found.before,
            found.members,
            found.update,
            chain,
            stage=PARKED,
            shredded=shredded,
            measured=measured,
        )
        found.finish(tx, model)
        session.flush()
        advance(tx, lease, "done")

    services.ledger.transact(effect)
