"""Vector indexes whose bytes are a function of their options and the set of their rows."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sqlmodel import Session

from app.service.context import Services
from lethe import canonical
from lethe.catalogue import GuaranteeClass
from lethe.certificates.statement import Guarantee
from lethe.errors import LetheError
from models import Model, ModelVersion
from workers import libraries
from workers.cases.case import ExecutedJob, Judges
from workers.errors import RefusedError
from workers.families.base import Family, Retrieval
from workers.families.recipe.family import RecipeFamily
from workers.families.vectors import update
from workers.leases.lease import JobContext
from workers.lineage.chain import BatchMember
from workers.updates.draft import Draft, sha256_hex
from workers.updates.update import Update

if TYPE_CHECKING:
    from numpy.typing import NDArray

FAISS = "faiss"
NOT_TESTED = (
    "The bytes of the model's file, its state and its exports were searched for the erased "
    "vectors and ids. Not tested: copies of the data or of earlier indexes elsewhere, the "
    "program that computed the vectors, and what was chosen with the erased rows at hand "
    "(centroids, parameters)."
)
GUARANTEES: Mapping[GuaranteeClass, str] = {
    "exact": "The index is, byte for byte, the one that is built from the retained records "
    "alone: the judge built it anew. Its lists depend on registered centroids.",
    "exact-retrained": "The graph was linked again from the retained records alone, and again "
    "by the judge, with the same version on a processor of the same kind: byte for byte the "
    "same.",
}


class NoFaissError(LetheError):
    """This worker cannot build indexes; another may, so the job waits."""

    slug, title, status = "no-faiss", "FAISS is not installed", 503


class VectorsFamily(RecipeFamily):
    """An index adds and drops rows; the judge rebuilds it, and searches its bytes."""

    rooms: tuple[str, ...] = ("families/vectors", "training/vectors")
    judge_rooms: tuple[str, ...] = ("judge", *rooms)
    formats: tuple[str, ...] = (FAISS,)
    fitting = update.FITTING
    method = update.METHOD

    def check_here(self) -> None:
        """Raise NoFaissError if FAISS is not installed."""
        if find_spec("faiss") is None:
            raise NoFaissError(
                f"this model's workers need faiss-cpu: {libraries.with_extra('vectors')}"
            )

    def forget(
        self, job: JobContext, before: ModelVersion, members: Sequence[BatchMember]
    ) -> Update:
        """Drop the members' records. Raises RefusedError."""
        self.check_here()
        return update.forget(job, before, members)

    def compares(self, claim: str) -> bool:
        """The erased rows stay sealed for the probe of every attempt."""
        return True

    def prepare(
        self, job: JobContext, session: Session, cases: Sequence[ExecutedJob], seed: bytes
    ) -> Judges:
        """Load the results of executed jobs of an index's version; the result judges them."""
        self.check_here()
        from workers.families.vectors.case import prepare_vectors

        return prepare_vectors(job, session, cases)

    def retrieve_held_out(
        self, services: Services, model: Model, file: bytes, features: "NDArray[Any]"
    ) -> Retrieval | None:
        """Return what the index finds for held-out rows. Raises RefusedError for no rows."""
        self.check_here()
        from workers.training.vectors import files, retrieval

        index = files.decode(file)
        queries = features[: retrieval.MOST]
        neighbours, share = retrieval.recall(index, queries)
        itself = retrieval.found_by_themselves(index)
        return Retrieval(len(queries), neighbours, share, itself)

    def guarantee(self, plan: Draft) -> Guarantee:
        """Return the guarantee of an index. Raises ValueError for another claim."""
        for name, words in GUARANTEES.items():
            if plan.claim == name:
                return Guarantee(name, f"{words} {NOT_TESTED}", plan.bounds)
        raise ValueError(f"no verifier of indexes vouches for the claim {plan.claim}")

    def registered(self, model: Model) -> dict[str, str]:
        """Return the digest of the index's options."""
        return {"index": sha256_hex(canonical.encode(model.config))}

    def export(
        self, artifact: bytes, form: str, classes: Sequence[str], config: Mapping[str, Any]
    ) -> bytes:
        """Return the file that `faiss.read_index` reads. Raises RefusedError."""
        from workers.training.vectors import faiss_file, files

        if form != FAISS:
            raise RefusedError(f"an index is exported as {FAISS}")
        return faiss_file.to_bytes(files.decode(artifact))

    def beside(self, artifact: bytes) -> Mapping[str, bytes]:
        """Return the record ids by FAISS's labels, one per line. Raises RefusedError."""
        from workers.training.vectors import files

        return {"ids": files.id_table(files.decode(artifact))}


FAMILY: Family = VectorsFamily()
