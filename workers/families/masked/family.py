"""Ridge heads whose clients send masked statistics: only the sum of a round is known."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sqlmodel import Session, select

from app.ledger.transaction import Transaction
from app.rounds.steps import fail_round
from app.service.context import Services
from lethe.certificates.statement import Guarantee
from models import Record, Round
from workers.cases.case import ExecutedJob, Judges, NextAttempt
from workers.families.base import Family, OwnJob
from workers.families.masked import end, rounds
from workers.families.masked.transcript import decode_transcript
from workers.families.ridge import case as ridge_case
from workers.families.ridge.case import Summed
from workers.families.ridge.family import UNSEEN, RidgeFamily, guarantee
from workers.judge.base import Report
from workers.judge.ridge.claim import ClaimedStatistics, MaskedClaim
from workers.leases.lease import JobContext
from workers.updates.draft import Draft

# What a certificate says about the verifier's view of a masked round.
SEEN = (
    f"{UNSEEN} The statistics are bit-equal to those before plus the unmasked sum of a round "
    "in which the clients that hold the records released them, recomputed from their signed "
    "messages"
)


class MaskedFamily(RidgeFamily):
    """An erasure waits for a round in which the clients that hold the records release them."""

    decidable = False  # no decision could help: the rows are not here
    judges_together = False  # the transcript of a round is judged for each of its requests
    own_jobs: Mapping[str, OwnJob] = MappingProxyType({"round": OwnJob(rounds.run, fail_round)})

    def next_attempt(
        self, job: JobContext, session: Session, case: ExecutedJob, report: Report
    ) -> NextAttempt | None:
        """Return None: the service never had the rows to refit from."""
        return None

    def why_ended(self, result: str, failed: str) -> str:
        """Return why nothing follows a judgement that was not PASS."""
        return f"verification {result}: {failed}; the rows were never here to refit from"

    def prepare(
        self, job: JobContext, session: Session, cases: Sequence[ExecutedJob], seed: bytes
    ) -> Judges:
        """Load a round's results for a head; the returned function sums it again."""
        (case,) = cases
        return prepare(job, session, case, seed)

    def guarantee(self, plan: Draft) -> Guarantee:
        """Return the guarantee for a round's sum and the head. Raises ValueError."""
        return guarantee(plan.claim, SEEN, plan.bounds)

    def park(self, job: JobContext) -> bool:
        """Park an erasure until the round that releases its records."""
        end.park(job)
        return True

    def certified(self, services: Services, tx: Transaction, request_id: str) -> None:
        """Shred a round's transcript when the last of its requests has ended."""
        end.settle(services, tx, request_id)

    def sweep(self, services: Services) -> None:
        """End steps that timed out, and shred transcripts that are no longer needed."""
        end.advance_due(services)


FAMILY: Family = MaskedFamily()


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
