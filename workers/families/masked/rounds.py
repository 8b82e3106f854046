"""Masked rounds: unmask the sum, compute the next version, name the erasures it executes.

Erasures of a masked model cannot be executed alone: they stay parked until a round in which the
clients that hold the records release them.
"""

from collections.abc import Sequence

from sqlmodel import Session

from app.ledger.journal import record_model_event
from app.ledger.transaction import Transaction
from app.reconcile.model_events import SUMMED
from app.rounds.steps import close_round
from app.service.context import Services
from models import Model, Round
from workers.errors import RefusedError
from workers.families.base import JointUpdate
from workers.families.masked.case import (
    RoundCase,
    RoundSum,
    apply_sum,
    counted_round,
    encode_counts,
    load_case,
    require_arrived,
    unmask_case,
)
from workers.families.masked.transcript import encode_transcript
from workers.families.ridge import stored
from workers.leases.lease import JobContext
from workers.lineage import versions
from workers.methods.ridge import base
from workers.methods.ridge.base import Outcome
from workers.updates.draft import ShreddedArtifact
from workers.updates.update import Update, UpdateResult


def run(job: JobContext) -> JointUpdate:
    """Return the version with a round's sum added, and the erasures that the round executes.

    Raises RefusedError if a member's key is not as registered, the masks do not cancel, or no
    rows can have the remaining statistics. Nothing was changed; a new round may be opened.
    """
    services = job.services
    with services.reading() as session:
        case = load_case(job, session)
    found = unmask_case(case)
    released = [member for member in case.released if set(member.salts) <= found.releases]
    if sum(len(member.salts) for member in released) != len(found.releases):
        raise RefusedError("records are released that no waiting request is about")
    whole = apply_sum(case, found)
    outcome = base.method_named(case.method).refit(case.config, [whole])

    def finish(tx: Transaction, model: Model) -> None:
        require_arrived(services.ledger, model.ref, case.inputs)
        row = tx.session.get_one(Round, case.row.id)
        counts = encode_counts(whole.counts.tolist())
        row.counts_id = services.artifacts.put(tx.session, "counts", counts).id
        if released:
            sealed = encode_transcript(case.transcript)
            row.transcript_id = services.artifacts.put(tx.session, "round", sealed).id
        close_round(services, tx, row, "done")
        record_model_event(tx, model.ref, SUMMED, {})

    return JointUpdate(
        base=case.row.plan["version"] or None,
        before=case.before,
        members=released,
        update=Update(_made(case, found, outcome), rest={}, round_id=case.row.id),
        owners=found.adds,
        people=found.people,
        destroy_before=lambda tx: _shred_counts(services, tx.session, job.lease.model_id),
        finish=finish,
    )


def _shred_counts(
    services: Services, session: Session, model_id: int
) -> Sequence[ShreddedArtifact]:
    """Destroy the label counts of the model before; publishing destroys its versions."""
    counted = counted_round(session, model_id)
    if counted is None or counted.counts_id is None:
        return []
    done = versions.shred(services, session, counted.counts_id, "counts")
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
