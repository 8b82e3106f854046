"""Recipes: any estimator of the catalogue, refitted on the retained rows."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, BinaryIO

from sqlmodel import Session

from app.service.context import Services
from lethe import canonical
from lethe.certificates.statement import Guarantee
from lethe.errors import LetheError
from models import Model, ModelVersion
from workers import libraries
from workers.cases.case import ExecutedJob, Judges, NextAttempt
from workers.families.base import Family
from workers.families.recipe import update
from workers.families.recipe.case import prepare_recipe
from workers.families.recipe.rows import decode_block, join, read
from workers.judge.base import Report
from workers.leases.lease import JobContext
from workers.lineage.chain import BatchMember
from workers.training.recipes import process
from workers.updates.draft import Draft, sha256_hex
from workers.updates.update import ParsedUpload, StoredBlock, Update, UpdateResult

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GUARANTEE = (
    "The model is, byte for byte, what the registered recipe gives on the retained records "
    "alone: it was fitted again from them in another process, with the same versions on a "
    "processor of the same kind. Not tested: copies of the data or of earlier models "
    "elsewhere, what was chosen outside the recipe with the erased rows at hand (features, "
    "encoders, parameters), and the libraries, whose code ran both times."
)


class NoLibraryError(LetheError):
    """This worker cannot fit recipes; another may, so the job waits."""

    slug, title, status = "no-scikit-learn", "scikit-learn is not installed", 503


class RecipeFamily(Family):
    """A recipe learns and forgets by a fit on all current rows."""

    rooms: tuple[str, ...] = ("families/recipe", "training/recipes")
    judge_rooms: tuple[str, ...] = ("judge", "training/recipes")
    audited = False
    formats: tuple[str, ...] = ("onnx", "skops")
    judges_together = True
    fitting = update.FITTING
    method = update.METHOD  # of a refit

    def check_here(self) -> None:
        """Raise NoLibraryError if scikit-learn is not installed."""
        if find_spec("sklearn") is None:
            raise NoLibraryError(
                f"this model's workers need scikit-learn: {libraries.with_extra('recipes')}"
            )

    def read(self, model: Model, upload: BinaryIO) -> ParsedUpload:
        """Return an upload's rows. Raises RefusedError if they cannot be learned."""
        self.check_here()
        return read(model, upload)

    def join(self, model: Model, stored: bytes, fresh: StoredBlock) -> StoredBlock:
        """Return the stored rows followed by the fresh ones. Raises RefusedError."""
        return join(decode_block(stored), fresh)

    def learn(
        self,
        job: JobContext,
        before: ModelVersion | None,
        upload: ParsedUpload,
        salts: "NDArray[np.uint8]",
    ) -> UpdateResult:
        """Fit on the stored rows and the upload. Raises RefusedError."""
        return update.learn(self.fitting, job, before, upload, salts)

    def forget(
        self, job: JobContext, before: ModelVersion, members: Sequence[BatchMember]
    ) -> Update:
        """Fit without the members' records. Raises NotFittedError."""
        self.check_here()
        return update.forget(self.fitting, job, members)

    def refit(self, job: JobContext) -> UpdateResult:
        """Refit on the retained rows. Raises NotFittedError."""
        self.check_here()
        return update.refit(self.fitting, job)

    def next_attempt(
        self, job: JobContext, session: Session, case: ExecutedJob, report: Report
    ) -> NextAttempt | None:
        """Return one more fit, for example on another machine; None if that was the refit."""
        if job.lease.step > 1:
            return None
        return NextAttempt(2, self.method, compared=self.compares(update.CLAIM))

    def compares(self, claim: str) -> bool:
        """A fit is repeated, not compared with the model before."""
        return False

    def prepare(
        self, job: JobContext, session: Session, cases: Sequence[ExecutedJob], seed: bytes
    ) -> Judges:
        """Load the results of executed jobs of a recipe's version; the result judges them."""
        self.check_here()
        return prepare_recipe(job, session, cases)

    def predict_held_out(
        self,
        services: Services,
        model: Model,
        file: bytes,
        features: "NDArray[np.float64]",
    ) -> "NDArray[Any] | None":
        """Return class indices, or numbers. Raises RefusedError.

        Not for the families derived from this one: their files differ.
        """
        if model.config["family"] != "recipe":
            return None
        self.check_here()
        return process.predict(file, features, update.limits(services))

    def guarantee(self, plan: Draft) -> Guarantee:
        """Return the guarantee of a refit. Raises ValueError for another claim."""
        if plan.claim != update.CLAIM:
            raise ValueError(f"no verifier of recipes vouches for the claim {plan.claim}")
        return Guarantee("exact-retrained", GUARANTEE, plan.bounds)

    def export(
        self, artifact: bytes, form: str, classes: Sequence[str], config: Mapping[str, Any]
    ) -> bytes:
        """Return a version's file as ONNX or skops. Raises RefusedError."""
        self.check_here()
        from workers.families.recipe import export, export_skops

        if form == "skops":
            return export_skops.export(artifact, classes)
        return export.export(artifact, classes)

    def registered(self, model: Model) -> dict[str, str]:
        """Return the digest of the recipe."""
        return {"recipe": sha256_hex(canonical.encode(model.config["recipe"]))}


FAMILY: Family = RecipeFamily()
