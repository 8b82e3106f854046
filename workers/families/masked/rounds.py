"""Masked rounds: unmask the sum, publish the next version, resume the waiting erasures.

Erasures of a masked model cannot be executed alone: they stay parked until a round in which the
clients that hold the records release them.
"""

import secrets

import numpy as np
from sqlmodel import Session

from app.ledger.journal import record_model_event
from app.ledger.transaction import Transaction
from app.reconcile.people import PeopleChangedError
from app.rounds.steps import close_round
from app.service.context import Services
from app.service.desk import people
from app.service.queue import PARKED
from app.steps import reached
from lethe import canonical
from lethe.certificates.evidence import SALT_SIZE
from models import Round
from workers.errors import RefusedError
from workers.families.masked.case import (
    RoundCase,
    RoundSum,
    apply_sum,
    counted_round,
    load_case,
    unmask_case,
)
from workers.families.masked.transcript import encode_transcript
from workers.families.ridge import stored
from workers.jobs import publish
from workers.jobs.draft import ShreddedArtifact
from workers.jobs.leases.lease import JobContext, advance
from workers.jobs.model import held_out, versions
from workers.jobs.model.chain import Chain, open_tree
from workers.jobs.update import FreshRecords, Update, UpdateResult, as_digests
from workers.methods.ridge import base
from workers.methods.ridge.base import Outcome


def run(job: JobContext) -> None:
    """Add a round's sum to its model and pass its erasures to the verifier.

    Raises:
        RefusedError: A member's key is not as registered, the masks do not cancel, no rows can
            have the remaining statistics, or the model's row was changed meanwhile. Nothing was
            changed; a new round may be opened.
        LeaseLostError: Another worker holds the job now.
    """
    services, lease = job.services, job.lease
    with services.reading() as session:
        case = load_case(job, session)
    found = unmask_case(case)
    released = [member for member in case.released if set(member.salts) <= found.releases]
    if sum(len(member.salts) for member in released) != len(found.releases):
        raise RefusedError("records are released that no waiting request is about")
    whole = apply_sum(case, found)
    outcome = base.method_named(case.method).refit(case.config, [whole])
    drawn = secrets.token_bytes(SALT_SIZE * len(found.adds))
    fresh = FreshRecords.salted(list(found.adds), as_digests(drawn))
    changes = len(fresh) + len(found.releases)
    with services.reading() as session:
        tree = open_tree(services.ledger, session, job.model, case.before, changes)
        chain = Chain.of(released, tree, added=list(fresh.ascending()))
    update = Update(_made(case, found, outcome), rest={}, round_id=case.row.id)
    measured = held_out.measure(job, update.result.encoded.head, released)
    if measured.before is not None and not found.adds.keys().isdisjoint(
        measured.before.records
    ):
        raise RefusedError("a record id is that of a held-out row registered: use new ids")
    reached("execute.computed")

    def effect(tx: Transaction) -> None:
        session = tx.session
        model = publish.unchanged(job, tx, case.row.plan["version"] or None)
        row = session.get_one(Round, case.row.id)
        subject_of = {
            owner: versions.named_subject(session, lease.model_id, owner).id or 0
            for owner in sorted(set(found.adds.values()))
        }
        subjects = np.array(
            [subject_of[owner] for owner in found.adds.values()], dtype=np.int64
        )
        versions.add_records(session, lease.model_id, fresh, subjects, keep_order=False)
        if found.people:
            try:
                people.require_sums(services, tx, model)
            except PeopleChangedError as error:
                raise RefusedError(f"{error.slug}: {error}") from error
            people.add(services, tx, model, found.people)
        shredded = _shred_counts(services, session, lease.model_id)
        publish.publish(
            job,
            tx,
            case.before,
            released,
            update,
            chain,
            stage=PARKED,
            shredded=shredded,
            measured=measured,
        )
        counts = canonical.encode(whole.counts.tolist())
        row.counts_id = services.artifacts.put(session, "counts", counts).id
        if released:
            sealed = encode_transcript(case.transcript)
            row.transcript_id = services.artifacts.put(session, "round", sealed).id
        close_round(services, tx, row, "done")
        record_model_event(tx, model.ref, "round.summed", {})
        session.flush()
        advance(tx, lease, "done")

    services.ledger.transact(effect)


def _shred_counts(
    services: Services, session: Session, model_id: int
) -> list[ShreddedArtifact]:
    """Destroy the label counts of the model before; publishing destroys its versions."""
    counted = counted_round(session, model_id)
    if counted is None or counted.counts_id is None:
        return []
    done = versions.shred(services, session, counted.counts_id)
    counted.counts_id = None
    session.flush()
    return [done] if done is not None else []


def _made(case: RoundCase, found: RoundSum, outcome: Outcome) -> UpdateResult:
    method = base.method_named(case.method)
    return UpdateResult(
        encoded=stored.encode(outcome.state, case.config),
        method=method.id,
        method_version=method.version,
        claim=outcome.claim,
        parameters={
            **stored.parameters(case.config),
            **outcome.notes,
            **_cast(case, found),
        },
        bounds={"head": repr(outcome.state.bound)},
    )


def _cast(case: RoundCase, found: RoundSum) -> dict[str, str]:
    """Return the certificate's parameters about the round itself."""
    return {
        "data": "masked",
        "round": case.row.id,
        "members": str(len(found.survivors)),
        "dropped": str(len(case.clients) - len(found.survivors)),
        "threshold": str(case.row.threshold),
        "contributors": str(found.contributors),
        "moved": str(len(found.adds) + len(found.releases)),
        "least-contributors": str(case.row.plan["least_contributors"]),
        "least-rows": str(case.row.plan["least_rows"]),
    }
