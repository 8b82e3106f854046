"""The operator's own training program, run again on the retained rows."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlmodel import Session

from app.service.context import Services
from lethe import canonical
from lethe.certificates.statement import Guarantee
from models import Model, ModelVersion
from workers.cases.case import ExecutedJob, Judges
from workers.errors import RefusedError
from workers.families.base import Family, LacksLibraryError
from workers.families.recipe.case import (
    ModelRows,
    OtherProcessorError,
    OwnFit,
    prepare,
    same_machine,
)
from workers.families.recipe.family import RecipeFamily
from workers.families.recipe.rows import digest_of_rows
from workers.families.recipe.update import NotFittedError, limits
from workers.judge.refitted import RERUN, VERIFIER, RefittedClaim, RerunClaim
from workers.leases.lease import JobContext
from workers.lineage.chain import BatchMember
from workers.training.programs import outputs, run
from workers.training.programs.program import OtherEnvironmentError, Program
from workers.training.recipes.fit import FitRows
from workers.training.recipes.process import Limits
from workers.updates.draft import Draft, sha256_hex
from workers.updates.update import Encoded, Update, UpdateResult

if TYPE_CHECKING:
    from numpy.typing import NDArray

METHOD, VERSION = "rerun", "1"
STATE = "script-state/1"
EXACT, WEAKER = "exact-retrained", "retrained"
NOT_TESTED = (
    " Not tested: copies of the data or of earlier models elsewhere, what was chosen outside "
    "the program with the erased rows at hand (features, encoders, parameters, the program "
    "itself), and the program and its libraries, which ran both times."
)
GUARANTEES = {
    EXACT: "The model is, byte for byte, what the registered program writes when it is run on "
    "the retained records alone: the judge ran it again, isolated from the network and from "
    "all other files, in an equal environment.",
    WEAKER: "The registered program was run on the retained records alone, and the judge ran "
    "it again, isolated from the network and from all other files. Two runs of this program "
    "differ; here no tensor differs by more than the registered tolerance. What the erased "
    "records changed by less than that is not excluded by the comparison.",
}


class NoArrowError(LacksLibraryError):
    """This worker cannot pass rows to a program; another may, so the job waits."""

    slug, title = "no-pyarrow", "pyarrow is not installed"
    modules, extra, named = ("pyarrow",), "tables", "pyarrow"


class ScriptFamily(RecipeFamily):
    """A program learns and forgets by a run on all current rows."""

    lacks = NoArrowError
    rooms: tuple[str, ...] = ("families/script", "training/programs", "training/isolation")
    judge_rooms: tuple[str, ...] = ("judge", "training/programs", "training/isolation")
    formats = ("onnx",)
    method = METHOD

    def forget(
        self, job: JobContext, before: ModelVersion, members: Sequence[BatchMember]
    ) -> Update:
        """Run without the members' records. Raises NotFittedError."""
        found = super().forget(job, before, members)
        if claim_of(job.model) == EXACT:
            return found
        with job.services.reading() as session:
            file = job.services.artifacts.get(session, before.head_id)
        moved = _difference(job.model, file, found.result.encoded.head)
        parameters = {**found.result.parameters, "difference.before": moved}
        return replace(found, result=replace(found.result, parameters=parameters))

    def prepare(
        self, job: JobContext, session: Session, cases: Sequence[ExecutedJob], seed: bytes
    ) -> Judges:
        """Load the results of executed jobs of a program's version; the result judges them."""
        self.check_here()
        verifier = VERIFIER if claim_of(cases[0].model) == EXACT else RERUN
        return prepare(job, session, cases, _own, verifier)

    def predict_held_out(
        self,
        services: Services,
        model: Model,
        file: bytes,
        features: "NDArray[Any]",
    ) -> "NDArray[Any] | None":
        """Return the predictions of the program's file. Raises RefusedError."""
        self.check_here()
        return run.predict(model.config, file, features, limits(services))

    def fit(self, model: Model, rows: FitRows, most: Limits) -> bytes:
        """Return what the program writes for these rows. Raises RefusedError."""
        return run.execute(model.config, rows, most)

    def first(self, model: Model, rows: FitRows, most: Limits) -> bytes:
        """Run the program twice at registration. Raises RefusedError if the files differ."""
        return run.execute_twice(model.config, rows, most)

    def result(self, model: Model, file: bytes, digests: Mapping[str, bytes]) -> UpdateResult:
        """Return what is published about a program's file."""
        program = Program.parse(model.config)
        data = digest_of_rows(digests.values())
        script = sha256_hex(canonical.encode(model.config["script"]))
        # Everything else that a run needs is in the registration and the rows.
        state = canonical.encode({"data": data, "kind": STATE, "script": script})
        tolerance = program.tolerance
        return UpdateResult(
            encoded=Encoded(file, state, data),
            method=METHOD,
            method_version=VERSION,
            claim=claim_of(model),
            parameters={
                "data": "rows",
                "entry": program.entry,
                "seed": str(program.seed),
                **run.environment(model.config),
            },
            bounds={} if tolerance is None else {"difference": f"{tolerance:.17g}"},
        )

    def guarantee(self, plan: Draft) -> Guarantee:
        """Return the guarantee of a run. Raises ValueError for another claim."""
        if plan.claim == EXACT:
            return Guarantee("exact-retrained", GUARANTEES[EXACT] + NOT_TESTED, plan.bounds)
        if plan.claim == WEAKER:
            return Guarantee("retrained", GUARANTEES[WEAKER] + NOT_TESTED, plan.bounds)
        raise ValueError(f"no verifier of scripts vouches for the claim {plan.claim}")

    def registered(self, model: Model) -> dict[str, str]:
        """Return the digest of the program, and of each of its files."""
        script = model.config["script"]
        files = {
            f"script.{name}": hashlib.sha256(text.encode()).hexdigest()
            for name, text in script["files"].items()
        }
        return {"script": sha256_hex(canonical.encode(script)), **files}

    def export(
        self, artifact: bytes, form: str, classes: Sequence[str], config: Mapping[str, Any]
    ) -> bytes:
        """Return the unchanged file if the program writes ONNX. Raises RefusedError."""
        try:
            outputs.read(artifact, "onnx")
        except outputs.OutputError:
            raise RefusedError(
                "this program writes safetensors, which no tool converts without its code: "
                "download the native file"
            ) from None
        return artifact


def claim_of(model: Model) -> str:
    """Return the class that a model's erasures claim: the weaker one if runs differ."""
    return EXACT if model.config["script"]["tolerance"] is None else WEAKER


def _own(stored: ModelRows) -> OwnFit:
    most = limits(stored.job.services)
    model = stored.case.model
    program = Program.parse(model.config)

    def fit(rows: FitRows) -> bytes:
        try:
            return run.execute(model.config, rows, most)
        except OtherEnvironmentError as error:
            raise OtherProcessorError(str(error)) from None
        except RefusedError as error:
            raise NotFittedError(str(error)) from None

    alike = same_machine(stored.case, run.environment(model.config))
    if program.tolerance is None:
        return OwnFit.of_all(stored, VERIFIER, alike, fit)
    limit = program.tolerance

    def complete(claim: RefittedClaim, published: bytes, own: bytes) -> RerunClaim:
        form = program.output
        return RerunClaim(claim, _tensors(published, form), _tensors(own, form), limit)

    return OwnFit.of_all(stored, RERUN, alike, fit, complete)


def _tensors(file: bytes, form: str) -> Mapping[str, Any] | None:
    """Return a file's tensors, None if unreadable: the judge then refutes it."""
    try:
        return outputs.read(file, form)
    except RefusedError:
        return None


def _difference(model: Model, before: bytes, after: bytes) -> str:
    form = model.config["script"]["output"]
    try:
        first, second = (outputs.numbers(one, form) for one in (before, after))
        return f"{outputs.difference(first, second):.3g}"
    except RefusedError:
        return "not comparable"


FAMILY: Family = ScriptFamily()
