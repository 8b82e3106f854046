"""Recipes: any estimator of the catalogue, refitted on the retained rows."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from sqlmodel import Session

from app.service.context import Services
from lethe import canonical
from lethe.certificates.statement import Guarantee
from models import Model, ModelVersion
from workers.cases.case import ExecutedJob, Judges, NextAttempt
from workers.errors import RefusedError
from workers.families.base import Family, LacksLibraryError
from workers.families.recipe import update
from workers.families.recipe.case import prepare_recipe
from workers.families.recipe.rows import (
    TableBlock,
    all_digests,
    current_rows,
    decode_block,
    departure,
    digest_of_rows,
    join,
    read,
    table,
)
from workers.judge.base import Report
from workers.leases.lease import JobContext
from workers.lineage.chain import BatchMember
from workers.lineage.logged import require_rows
from workers.training.recipes import process
from workers.training.recipes.fit import FitRows
from workers.training.recipes.process import Limits
from workers.updates.draft import Draft, sha256_hex
from workers.updates.update import (
    Encoded,
    ParsedUpload,
    StoredBlock,
    Update,
    UpdateResult,
    split,
)

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


class NoLibraryError(LacksLibraryError):
    """This worker cannot fit recipes; another may, so the job waits."""

    slug, title = "no-scikit-learn", "scikit-learn is not installed"
    modules, extra, named = ("sklearn",), "recipes", "scikit-learn"


class RecipeFamily(Family):
    """A recipe learns and forgets by a fit on all current rows."""

    lacks: type[LacksLibraryError] | None = NoLibraryError
    rooms: tuple[str, ...] = ("families/recipe", "training/recipes")
    judge_rooms: tuple[str, ...] = ("judge", "training/recipes")
    audited = False
    formats: tuple[str, ...] = ("onnx", "skops")
    judges_together = True
    method = update.METHOD  # of a refit

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
        """Fit on the stored rows and the upload.

        Raises RefusedError also if the stored rows are not those of `before`.
        """
        new = [one for one in upload.blocks.values() if isinstance(one, TableBlock)]
        blocks, known = current_rows(job)
        held = list(blocks.values())
        digests = all_digests(held, known)
        require_rows(before, digest_of_rows(digests.values()))
        known |= zip(upload.records, split(salts), strict=True)
        digests |= all_digests(new, known)
        rows = table([*held, *new], known, job.model)
        run = self.first if before is None else self.fit
        file = run(job.model, rows, update.limits(job.services))
        return self.result(job.model, file, digests)

    def forget(
        self, job: JobContext, before: ModelVersion, members: Sequence[BatchMember]
    ) -> Update:
        """Fit without the members' records.

        Raises NotFittedError if the fit failed or exceeded a limit, or a library is missing,
        and OtherModelError if a record has two rows.
        """
        self.check_here()
        found = departure(job, members)
        result = self._refitted(job, found.retained, found.salts)
        return Update(result, found.rest, rows_gone=found.gone)

    def refit(self, job: JobContext) -> UpdateResult:
        """Refit on the retained rows. Raises as `forget`."""
        self.check_here()
        blocks, salts = current_rows(job)
        return self._refitted(job, list(blocks.values()), salts)

    def _refitted(
        self, job: JobContext, blocks: Sequence[TableBlock], salts: Mapping[str, bytes]
    ) -> UpdateResult:
        digests = all_digests(blocks, salts)
        rows = table(blocks, salts, job.model)
        try:
            file = self.fit(job.model, rows, update.limits(job.services))
        except RefusedError as error:
            raise update.NotFittedError(str(error)) from None
        return self.result(job.model, file, digests)

    def fit(self, model: Model, rows: FitRows, most: Limits) -> bytes:
        """Return the file of a model fitted to rows, which are in the order of `table`.

        Raises RefusedError.
        """
        recipe = update.recipe_of(model)
        return process.fit(recipe, rows, process.threads_of(recipe), most)

    def first(self, model: Model, rows: FitRows, most: Limits) -> bytes:
        """Fit at registration, in two processes, whose results are compared.

        Raises RefusedError, also if the fit cannot be repeated.
        """
        return process.try_twice(update.recipe_of(model), rows, most)

    def result(self, model: Model, file: bytes, digests: Mapping[str, bytes]) -> UpdateResult:
        """Return what is published about a file, by the salted digests of its rows."""
        recipe = update.recipe_of(model)
        data = digest_of_rows(digests.values())
        digest = sha256_hex(canonical.encode(recipe.document))
        # Everything else that a refit needs is in the registration and the rows.
        state = canonical.encode({"data": data, "kind": update.STATE, "recipe": digest})
        return UpdateResult(
            encoded=Encoded(file, state, data),
            method=update.METHOD,
            method_version=update.VERSION,
            claim=update.CLAIM,
            parameters={
                "data": "rows",
                "estimator": ", ".join(one.estimator for one in recipe.steps),
                "seed": str(recipe.seed),
                **process.environment(recipe),
            },
        )

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
