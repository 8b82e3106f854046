"""Shards: a recipe over shares of the rows; an erasure refits the shards with erased rows."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlmodel import Session

from app.service.context import Services
from lethe import canonical
from lethe.certificates.statement import Guarantee
from models import Model, ModelVersion
from workers.cases.case import ExecutedJob, Judges
from workers.errors import RefusedError
from workers.families.base import Family
from workers.families.recipe.family import RecipeFamily
from workers.families.recipe.update import limits
from workers.families.shards import update
from workers.families.shards.case import prepare_shards
from workers.leases.lease import JobContext
from workers.lineage.chain import BatchMember
from workers.training.programs import run
from workers.training.recipes import process
from workers.training.recipes.process import Limits
from workers.training.shards import container
from workers.updates.draft import Draft, sha256_hex
from workers.updates.update import ParsedUpload, Update, UpdateResult

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

READER = "workers.training.shards.predict"
GUARANTEE = (
    "The shards named here, in which the erased records were, are byte for byte what the "
    "registered recipe or program gives on the retained records of each alone: they were "
    "fitted again in another process, with the same versions on a processor of the same kind. "
    "The files of all "
    "other shards are those of the version before, by digest, and by the log's digests of "
    "their rows no erased record was among these. Not tested: whether a shard that was never "
    "fitted for an erasure is what its rows give, for what is learned is not judged; copies of "
    "the data or of earlier models elsewhere; what was chosen outside the recipe with the "
    "erased rows at hand (features, encoders, parameters); and the libraries, whose code ran "
    "both times."
)


class ShardsFamily(RecipeFamily):
    """Each shard learns and forgets by a fit on all its current rows."""

    formats: tuple[str, ...] = ("onnx", "skops")
    method = update.METHOD
    rooms: tuple[str, ...] = (
        "families/shards",
        "training/isolation",
        "training/programs",
        "training/shards",
        *RecipeFamily.rooms,
    )
    judge_rooms: tuple[str, ...] = (
        "judge",
        "training/isolation",
        "training/programs",
        "training/recipes",
        "training/shards",
    )

    def learn(
        self,
        job: JobContext,
        before: ModelVersion | None,
        upload: ParsedUpload,
        salts: "NDArray[np.uint8]",
    ) -> UpdateResult:
        """Fit the shards that receive rows. Raises RefusedError."""
        return update.learn(job, before, upload, salts)

    def forget(
        self, job: JobContext, before: ModelVersion, members: Sequence[BatchMember]
    ) -> Update:
        """Fit the shards that held the members' records. Raises NotFittedError."""
        self.check_here()
        return update.forget(job, before, members)

    def refit(self, job: JobContext) -> UpdateResult:
        """Refit every shard on its retained rows. Raises NotFittedError."""
        self.check_here()
        return update.refit(job)

    def compares(self, claim: str) -> bool:
        """The shards before the erasure are compared with every attempt."""
        return True

    def prepare(
        self, job: JobContext, session: Session, cases: Sequence[ExecutedJob], seed: bytes
    ) -> Judges:
        """Load the results of executed jobs of a version of shards; the result judges them."""
        self.check_here()
        return prepare_shards(job, session, cases)

    def predict_held_out(
        self,
        services: Services,
        model: Model,
        file: bytes,
        features: "NDArray[Any]",
    ) -> "NDArray[Any] | None":
        """Return the shards' joint prediction, or each separately (shards, n)."""
        self.check_here()
        if "script" in model.config:
            return _programs_apart(model, file, features, limits(services))
        return process.predict(file, features, limits(services), READER)

    def export(
        self, artifact: bytes, form: str, classes: Sequence[str], config: Mapping[str, Any]
    ) -> bytes:
        """Return a version's file as ONNX or skops. Raises RefusedError."""
        if "script" in config:
            raise RefusedError("shards of a program are as it wrote them: take the native file")
        self.check_here()
        from workers.families.shards import export

        made = export.to_onnx if form == "onnx" else export.to_skops
        return made(artifact, classes)

    def guarantee(self, plan: Draft) -> Guarantee:
        """Return the guarantee of shards. Raises ValueError for another claim."""
        if plan.claim != update.CLAIM:
            raise ValueError(f"no verifier of shards vouches for the claim {plan.claim}")
        named = ", ".join(plan.parameters["shards"].split())
        begins = f"Shards {named} of {plan.parameters['shardsOf']} were fitted again. "
        return Guarantee("exact-retrained", begins + GUARANTEE, plan.bounds)

    def registered(self, model: Model) -> dict[str, str]:
        """Return the digests of the recipe, or script, and of the sharding options."""
        name = "script" if "script" in model.config else "recipe"
        return {
            name: sha256_hex(canonical.encode(model.config[name])),
            "sharding": sha256_hex(canonical.encode(model.config["shards"])),
        }


def _programs_apart(
    model: Model, file: bytes, features: "NDArray[Any]", most: Limits
) -> "NDArray[Any]":
    """Return the predictions of each shard's program (shards, n), as `ShardedModel`."""
    import numpy as np

    _, files = container.decode(file)
    none = np.full(len(features), -1 if model.classes else np.nan)
    return np.stack(
        [run.predict(model.config, one, features, most) if one else none for one in files]
    )


FAMILY: Family = ShardsFamily()
