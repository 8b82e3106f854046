"""Vector indexes whose bytes are a function of their options and the set of their rows.

The published file contains the rows themselves, so an erasure removes them from it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlmodel import Session

from app.service.context import Services
from lethe import canonical
from lethe.catalogue import GuaranteeClass
from lethe.certificates.statement import Guarantee
from models import Model, ModelVersion
from workers.cases.case import ExecutedJob, Judges
from workers.errors import ArtifactError, RefusedError
from workers.families.base import Family, LacksLibraryError, Retrieval
from workers.families.recipe.family import RecipeFamily
from workers.families.recipe.rows import all_digests, departure, digest_of_rows, table
from workers.families.vectors.update import Erased, built, claim_of, options_of, rows_of
from workers.leases.lease import JobContext
from workers.lineage.chain import BatchMember
from workers.training.recipes.fit import FitRows
from workers.training.recipes.process import Limits
from workers.training.vectors.index import HNSW
from workers.updates.draft import Draft, sha256_hex
from workers.updates.update import Encoded, Update, UpdateResult

if TYPE_CHECKING:
    from numpy.typing import NDArray

FAISS = "faiss"
METHOD, VERSION = "vectors-drop", "1"
STATE = "vectors-state/1"
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


class NoFaissError(LacksLibraryError):
    """This worker cannot build indexes; another may, so the job waits."""

    slug, title = "no-faiss", "FAISS is not installed"
    modules, extra, named = ("faiss",), "vectors", "faiss-cpu"


class VectorsFamily(RecipeFamily):
    """An index adds and drops rows; the judge rebuilds it, and searches its bytes."""

    lacks = NoFaissError
    rooms: tuple[str, ...] = ("families/vectors", "training/vectors")
    judge_rooms: tuple[str, ...] = ("judge", *rooms)
    formats: tuple[str, ...] = (FAISS,)
    method = METHOD

    def forget(
        self, job: JobContext, before: ModelVersion, members: Sequence[BatchMember]
    ) -> Update:
        """Drop the members' records. Raises RefusedError."""
        self.check_here()
        from workers.training.vectors import files
        from workers.training.vectors.build import drop

        found = departure(job, members)
        leaving = sorted(record for member in members for record in member.salts)
        with job.services.reading() as session:
            file = job.services.artifacts.get(session, before.head_id)
        gone = rows_of(found.blocks, leaving)
        try:
            new = files.encode(drop(files.decode(file), leaving))
        except ArtifactError:  # another model's file; the judge builds from the rows
            new = built(job.model, table(found.retained, found.salts, job.model))
        result = self.result(job.model, new, all_digests(found.retained, found.salts))
        erased = Erased(gone, {record: found.salts[record] for record in gone.records})
        return Update(result, found.rest, before=erased.encode(), rows_gone=found.gone)

    def fit(self, model: Model, rows: FitRows, most: Limits) -> bytes:
        """Return the file of the index of these rows. Raises RefusedError."""
        return built(model, rows)

    def first(self, model: Model, rows: FitRows, most: Limits) -> bytes:
        """Build a graph twice, to compare. Raises RefusedError if the two differ."""
        file = built(model, rows)
        if options_of(model).index == HNSW and built(model, rows) != file:
            raise RefusedError(
                "two builds of the graph give different bytes, so that nobody could compare a "
                "rebuild with them: register an index of the kind flat or ivf"
            )
        return file

    def result(self, model: Model, file: bytes, digests: Mapping[str, bytes]) -> UpdateResult:
        """Return what is published about an index."""
        options, data = options_of(model), digest_of_rows(digests.values())
        registered = sha256_hex(canonical.encode(model.config))
        parameters = {
            "data": "rows",
            "dimensions": str(options.columns),
            "index": options.index,
            "metric": options.metric,
        }
        if options.index == HNSW:
            from workers.training.vectors.faiss_file import environment

            parameters |= {"seed": str(options.seed), **environment()}
        state = canonical.encode({"data": data, "index": registered, "kind": STATE})
        return UpdateResult(
            encoded=Encoded(file, state, data),
            method=METHOD,
            method_version=VERSION,
            claim=claim_of(options),
            parameters=parameters,
        )

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
