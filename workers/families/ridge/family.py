"""Ridge heads whose rows, or whose clients' statistics, are stored here."""

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from sqlmodel import Session

from app.service.context import Services
from lethe.certificates.statement import Guarantee
from models import Model, ModelVersion
from workers.artifacts import decode_head
from workers.families.base import Family
from workers.families.ridge import update, wording
from workers.families.ridge.blocks import decode_block, join
from workers.families.ridge.case import prepare
from workers.families.ridge.export import FORMATS, export
from workers.jobs.attempts import NextAttempt
from workers.jobs.case import ExecutedJob, Judges
from workers.jobs.draft import Draft
from workers.jobs.leases.lease import JobContext
from workers.jobs.model.chain import BatchMember
from workers.jobs.update import ParsedUpload, StoredBlock, Update, UpdateResult
from workers.judge.base import Report


class RidgeFamily(Family):
    """Sums are exact, so a contribution is added, and an erasure subtracted."""

    rooms = ("methods/ridge",)
    judge_rooms = ("judge",)
    audited = False
    formats = tuple(FORMATS)
    judges_together = True

    def read(self, model: Model, upload: BinaryIO) -> ParsedUpload:
        """Parse an upload. Raises RefusedError if it cannot be learned."""
        return update.read(model, upload)

    def join(self, model: Model, stored: bytes, fresh: StoredBlock) -> StoredBlock:
        """Add up rows, or statistics. Raises RefusedError, ExactnessError."""
        return join(decode_block(stored), fresh, bits=model.config["bits"])

    def learn(
        self,
        job: JobContext,
        before: ModelVersion | None,
        upload: ParsedUpload,
        salts: NDArray[np.uint8],
    ) -> UpdateResult:
        """Add an upload to the statistics. Raises RefusedError if no rows have them."""
        return update.learn(job, before, upload, salts)

    def forget(
        self, job: JobContext, before: ModelVersion, members: Sequence[BatchMember]
    ) -> Update:
        """Subtract the members' records. Raises RefusedError, AnswerError."""
        return update.forget(job, before, members)

    def refit(self, job: JobContext) -> UpdateResult:
        """Refit from the retained rows. Raises RefusedError."""
        return update.refit(job)

    def next_attempt(
        self, job: JobContext, session: Session, case: ExecutedJob, report: Report
    ) -> NextAttempt | None:
        """Return the refit, whatever the request and verdict were; None if that was it."""
        return None if job.lease.attempt > 1 else NextAttempt(2, "refit", compared=True)

    def compares(self, claim: str) -> bool:
        """Statistics can be compared with those before, whatever produced them."""
        return True

    def prepare(
        self, job: JobContext, session: Session, cases: Sequence[ExecutedJob], seed: bytes
    ) -> Judges:
        """Load the results of executed jobs on a head; the returned function judges them."""
        return prepare(job, session, cases, seed)

    def guarantee(self, plan: Draft) -> Guarantee:
        """Return the guarantee for statistics and head. Raises ValueError."""
        return wording.guarantee(plan.claim, wording.SEEN[plan.parameters["data"]], plan.bounds)

    def registered(self, model: Model) -> dict[str, str]:
        """Return the digest of the extractor."""
        return {"extractor": model.extractor["digest"]}

    def registered_with_rows(self, model: Model) -> bool:
        """Otherwise rows or their statistics come with the first contribution."""
        return bool(model.config["data"] == "rows")

    def asks(self, model: Model) -> bool:
        """A client's sum does not show the share of one record."""
        return bool(model.config["data"] == "statistics")

    def predict_held_out(
        self,
        services: Services,
        model: Model,
        file: bytes,
        features: "NDArray[np.float64]",
    ) -> "NDArray[Any] | None":
        """Return the class of the highest score, as every export of a head does."""
        head, _ = decode_head(file)
        found: NDArray[Any] = (features @ head.astype(np.float64)).argmax(axis=1)
        return found

    def export(
        self, artifact: bytes, form: str, classes: Sequence[str], config: Mapping[str, Any]
    ) -> bytes:
        """Return the head for other programs. Raises RefusedError."""
        return export(artifact, form, classes)


FAMILY: Family = RidgeFamily()
