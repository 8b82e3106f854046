"""Forests whose bytes are a function of their configuration and the set of their rows."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from sqlmodel import Session

from lethe import canonical
from lethe.certificates.statement import Guarantee
from lethe.errors import LetheError
from models import Model, ModelVersion
from workers import install
from workers.families.base import Family
from workers.families.forest import update
from workers.families.recipe.case import ModelRows, OwnFit, prepare
from workers.families.recipe.family import RecipeFamily
from workers.jobs.attempts import NextAttempt
from workers.jobs.case import ExecutedJob, Judges
from workers.jobs.chain import BatchMember
from workers.jobs.draft import Draft, sha256_hex
from workers.jobs.lease import JobContext
from workers.jobs.update import ParsedUpload, Update, UpdateResult
from workers.judge.base import Report
from workers.judge.refitted import EXACT
from workers.training.recipes.fit import FitRows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GUARANTEE = (
    "The forest is, byte for byte, the one that is fitted to the retained records alone: the "
    "judge fitted it anew. Its splits depend on the registered seed and edges and on integer "
    "sums over the retained records. Not tested: copies of the data or of earlier forests "
    "elsewhere, and what was chosen outside with the erased rows at hand (features, edges, "
    "parameters)."
)


class NoNumbaError(LetheError):
    """This worker cannot fit forests; another may, so the job waits."""

    slug, title, status = "no-numba", "numba is not installed", 503


class ForestFamily(RecipeFamily):
    """A forest adds and removes rows; the judge fits it anew."""

    rooms: tuple[str, ...] = ("families/forest", "lethe/estimators/forest")
    judge_rooms: tuple[str, ...] = ("judge", *rooms)

    def check_here(self) -> None:
        """Raise NoNumbaError where numba is not installed."""
        if find_spec("numba") is None:
            raise NoNumbaError(
                f"this model's workers need numba: {install.with_extra('estimators')}"
            )

    def learn(
        self,
        job: JobContext,
        before: ModelVersion | None,
        upload: ParsedUpload,
        salts: "NDArray[np.uint8]",
    ) -> UpdateResult:
        """Add an upload. Raises RefusedError if no forest takes its rows."""
        return update.learn(job, before, upload, salts)

    def forget(
        self, job: JobContext, before: ModelVersion, members: Sequence[BatchMember]
    ) -> Update:
        """Remove the members' records. Raises RefusedError."""
        self.check_here()
        return update.forget(job, before, members)

    def refit(self, job: JobContext) -> UpdateResult:
        """Fit anew to the retained rows. Raises RefusedError."""
        self.check_here()
        return update.refit(job)

    def next_attempt(
        self, job: JobContext, session: Session, case: ExecutedJob, report: Report
    ) -> NextAttempt | None:
        """Return the refit, None where it was that."""
        return None if job.lease.attempt > 1 else NextAttempt(2, update.METHOD)

    def prepare(
        self, job: JobContext, session: Session, cases: Sequence[ExecutedJob], seed: bytes
    ) -> Judges:
        """Load what executed jobs left of a forest's version; the result judges them."""
        self.check_here()

        def own(stored: ModelRows) -> OwnFit:
            # Sums of integers: what machine fits makes no difference.
            model = stored.case.model
            return OwnFit.of_all(stored, EXACT, True, lambda rows: _fit(model, rows))

        return prepare(job, session, cases, own, EXACT)

    def guarantee(self, plan: Draft) -> Guarantee:
        """Return what is guaranteed of a forest. Raises ValueError for another claim."""
        if plan.claim != update.CLAIM:
            raise ValueError(f"no verifier of forests vouches for the claim {plan.claim}")
        return Guarantee("exact", GUARANTEE, plan.bounds)

    def registered(self, model: Model) -> dict[str, str]:
        """Return the digest of edges and options."""
        return {"forest": sha256_hex(canonical.encode(model.config))}


def _fit(model: Model, rows: FitRows) -> bytes:
    from workers.families.recipe.rows import TableBlock

    names = [str(place) for place in range(len(rows))]  # the published bytes have no ids
    block = TableBlock(names, rows.features, rows.labels)
    return update.fitted(model, [block]).published().to_bytes()


FAMILY: Family = ForestFamily()
