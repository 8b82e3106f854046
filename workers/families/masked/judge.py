"""The verifier's input for a masked round: its signed messages, to be summed again."""

from sqlmodel import Session, select

from app.service.context import Services
from models import Record, Round
from workers.families.masked.transcript import decode_transcript
from workers.families.ridge import case as ridge_case
from workers.families.ridge.case import Summed
from workers.jobs.case import ExecutedJob, Judges
from workers.jobs.draft import Draft
from workers.jobs.leases.lease import JobContext
from workers.judge.ridge.claim import ClaimedStatistics, MaskedClaim


def prepare(job: JobContext, session: Session, case: ExecutedJob, seed: bytes) -> Judges:
    """Load a round's results for a head; the returned function judges it as any ridge head.

    Versions whose table rows differ from the log are refuted at once.
    """

    def load_sum() -> Summed:
        ids = session.exec(select(Record.record).where(Record.model_id == case.model.id))
        return Summed(_claim_of(job.services, session, case.plan), list(ids))

    return ridge_case.prepare(job, session, [case], seed, load_sum)


def _claim_of(services: Services, session: Session, plan: Draft) -> MaskedClaim:
    """Return the claim that the verifier sums again."""
    row = session.get_one(Round, plan.round_id)
    assert row.transcript_id is not None
    found = decode_transcript(services.artifacts.get(session, row.transcript_id))
    before = found.before
    return MaskedClaim(
        plan=found.plan,
        roster=found.roster,
        messages=found.messages,
        before=(
            None
            if before is None
            else ClaimedStatistics(before.gram, before.moment, before.rows)
        ),
        before_digest=plan.statistics_before,
        erased=[str(item["record"]) for item in plan.removal["records"]],
    )
