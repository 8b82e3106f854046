"""The interface of a kind of model, and the registry of those there are.

The rest of `workers` knows this file alone. A family is a folder with a module `family` that
holds FAMILY, and one line in FAMILIES.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from sqlmodel import Session

from app.ledger.transaction import Transaction
from app.service.context import Services
from lethe.certificates.statement import Guarantee
from lethe.errors import LetheError
from models import Job, Model, ModelVersion
from workers.errors import RefusedError
from workers.jobs.attempts import NextAttempt
from workers.jobs.case import ExecutedJob, Judges
from workers.jobs.draft import Draft
from workers.jobs.leases.lease import JobContext
from workers.jobs.model.chain import BatchMember
from workers.jobs.update import ParsedUpload, StoredBlock, Update, UpdateResult
from workers.judge.base import Report
from workers.silos.score_task import ScoreTask

if TYPE_CHECKING:  # these load torch, which only some workers have, or numerics
    import numpy as np
    from numpy.typing import NDArray

    from workers.method_audits.pair import Pair
    from workers.silos.message import Positions
    from workers.silos.scores import SiloScores
    from workers.training.fedavg.base import ClientData

# By the family that a model is registered with, or by family and where the rows are.
FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "ridge": "workers.families.ridge.family",
        "ridge-masked": "workers.families.masked.family",
        "network": "workers.families.network.family",
        "forest": "workers.families.forest.family",
        "recipe": "workers.families.recipe.family",
        "script": "workers.families.script.family",
        "shards": "workers.families.shards.family",
        "sums": "workers.families.sums.family",
        "vectors": "workers.families.vectors.family",
    }
)


NO_SILOS = "no rows of this kind of model lie with silos"


class UnknownFamilyError(LetheError):
    """This worker knows no such kind of model; a newer one may, so the job waits."""

    slug, title, status = "unknown-family", "This worker knows no such family", 503


@dataclass(frozen=True, slots=True)
class OwnJob:
    """A kind of job that only one family has: what executes it, and what ends it as failed.

    fail: of (services, transaction, job, reason), in the transaction that ends the job.
    """

    run: Callable[[JobContext], None]
    fail: Callable[[Services, Transaction, Job, str], None]


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What an index finds, of as many held-out rows as were looked up (`queries`).

    recall: share of the `neighbours` nearest rows of a query that the index finds. itself:
    share of its own rows that a search for their vectors finds first.
    """

    queries: int
    neighbours: int
    recall: float
    itself: float


@dataclass(frozen=True, slots=True)
class AuditedMethod:
    """A method, its settings and the stored rows, as a method audit runs them in memory.

    version: of the method. environment: what equal bits need to agree on. run_pair: computes
    the pair of a number.
    """

    version: str
    environment: Mapping[str, str]
    run_pair: "Callable[[int], Pair]"


class Family(Protocol):
    """What a kind of model can do. Nothing is written unless a `Transaction` is given.

    rooms: of `workers`, whose code made a model what it is; judge_rooms: whose code judges it.
    Their digests stand in the certificate. formats: that a version is exported in, beside its
    own file. audited: whether a certificate cites the audits of
    the method. judges_together: whether the requests of one version are judged at once, because
    all but their own retained set and purge is the same. decidable: whether an operator can
    decide on what did not pass. own_jobs: by kind, the jobs that only this family has.
    trains_networks: whether its jobs compute on a GPU where there is one.

    What computes raises RefusedError where it declines, and the message says why.
    """

    rooms: tuple[str, ...]
    judge_rooms: tuple[str, ...]
    audited: bool
    formats: tuple[str, ...] = ()
    judges_together: bool = False
    decidable: bool = True
    trains_networks: bool = False
    own_jobs: Mapping[str, OwnJob] = MappingProxyType({})

    def check_here(self) -> None:
        """Raise a LetheError if this worker lacks what the family computes with."""
        return

    def read(self, model: Model, upload: BinaryIO) -> ParsedUpload:
        """Parse an accepted upload, which need not fit into memory as it was sent.

        Raises RefusedError if it cannot be learned.
        """

    def join(self, model: Model, stored: bytes, fresh: StoredBlock) -> StoredBlock:
        """Return an owner's stored block with what came since. Raises RefusedError."""

    def learn(
        self,
        job: JobContext,
        before: ModelVersion | None,
        upload: ParsedUpload,
        salts: "NDArray[np.uint8]",
    ) -> UpdateResult:
        """Return the version that has learned an upload; salts (n, 32) are of its records."""

    def forget(
        self, job: JobContext, before: ModelVersion, members: Sequence[BatchMember]
    ) -> Update:
        """Return the version without the members' records.

        Raises AnswerError where a client must answer anew.
        """

    def refit(self, job: JobContext) -> UpdateResult:
        """Return the version of the lease's attempt, the last of which makes the model anew."""

    def next_attempt(
        self, job: JobContext, session: Session, case: ExecutedJob, report: Report
    ) -> NextAttempt | None:
        """Return what comes after a judgement that was no PASS, None for a person."""

    def why_ended(self, result: str, failed: str) -> str:
        """Return why a request that did not pass ends here instead of escalating.

        failed: the checks that did not pass, in words.
        """
        return f"verification {result} also after a refit: {failed}"

    def compares(self, claim: str) -> bool:
        """Return whether a repair with a claim is compared with what was before the update.

        Where it is not, what was kept of that is destroyed with the repair.
        """

    def draw_seed(self, job: JobContext, case: ExecutedJob) -> bytes:
        """Return 32 random bytes for a judgement that nobody knew when the job was executed.

        A family whose verdict is worth drawing again logs them before they are used.
        """
        return os.urandom(32)

    def prepare(
        self, job: JobContext, session: Session, cases: Sequence[ExecutedJob], seed: bytes
    ) -> Judges:
        """Load what executed jobs of one version left to be judged; the result judges them.

        cases: one, unless the family `judges_together`. seed: as `draw_seed` returned it.
        """

    def guarantee(self, plan: Draft) -> Guarantee:
        """Return what a certificate guarantees, in words. Raises ValueError for no claim."""

    def registered(self, model: Model) -> dict[str, str]:
        """Return the digests of a registration that stand in its certificates, by name."""

    def registered_with_rows(self, model: Model) -> bool:
        """Return whether a model was registered with rows, and has failed if they have.

        One that waits for its clients' statistics can wait for other ones.
        """
        return True

    def asks(self, model: Model) -> bool:
        """Return whether only clients can tell what of a block belongs to some records."""
        return False

    def park(self, job: JobContext) -> bool:
        """Let an erasure wait that cannot be executed alone; return whether it waits.

        Raises LeaseLostError where another worker holds the job now.
        """
        return False

    def certified(self, services: Services, tx: Transaction, request_id: str) -> None:
        """Destroy what was kept to certify a request, which has just been."""
        return

    def sweep(self, services: Services) -> None:
        """End what waits for the time alone, in transactions of its own."""
        return

    def export(
        self, artifact: bytes, form: str, classes: Sequence[str], config: Mapping[str, Any]
    ) -> bytes:
        """Return a version's file in one of `formats`, for programs without Lethe's code.

        classes, config: as the model is registered. Raises RefusedError.
        """
        raise RefusedError("this kind of model is exported in no other format")

    def predict_held_out(
        self,
        services: Services,
        model: Model,
        file: bytes,
        features: "NDArray[Any]",
    ) -> "NDArray[Any] | None":
        """Return what a version's file predicts of rows (n, …); None: it is not measured.

        Places of classes, of the shape of the labels, or numbers (n,) of a model without
        classes; (parts, n) of parts that answer apart, with -1 or NaN of one without rows.
        Raises RefusedError.
        """
        return None

    def retrieve_held_out(
        self, services: Services, model: Model, file: bytes, features: "NDArray[Any]"
    ) -> Retrieval | None:
        """Return what an index finds of held-out rows (n, d); None: it is no index.

        Raises RefusedError.
        """
        return None

    def beside(self, artifact: bytes) -> Mapping[str, bytes]:
        """Return files that stand beside every export of a version's file, by their suffixes.

        Raises RefusedError.
        """
        return {}

    def client_rows(
        self,
        services: Services,
        session: Session,
        model: Model,
        client: str,
        positions: "Positions",
    ) -> "ClientData":
        """Return a client's training rows, as its silo answers a round from them.

        positions: which of them, in their order; None: all. Raises RefusedError.
        """
        raise RefusedError(NO_SILOS)

    def score(self, services: Services, task: ScoreTask) -> "tuple[SiloScores, int]":
        """Return what a silo's clients say of two models, and the number of classes.

        Raises RefusedError.
        """
        raise RefusedError(NO_SILOS)

    def audited_method(
        self, services: Services, session: Session, model: Model, settings: Mapping[str, str]
    ) -> AuditedMethod:
        """Return the method of a method audit with its rows. settings: as it was started.

        Raises RefusedError.
        """
        raise RefusedError("no method of this kind of model can be audited")


def of(model: Model) -> Family:
    """Return the family of a model. Raises as `configured`."""
    return configured(model.config)


def configured(config: Mapping[str, Any]) -> Family:
    """Return the family of a model that is registered so.

    Raises:
        UnknownFamilyError: This worker has none of its name.
    """
    name = str(config.get("family", "ridge"))
    path = FAMILIES.get(f"{name}-{config.get('data')}", FAMILIES.get(name))
    if path is None:
        raise UnknownFamilyError(f"update the workers: they know no family {name}")
    return _load(path)


def every() -> Iterator[Family]:
    """Yield each family once."""
    yield from map(_load, FAMILIES.values())


def client_rows(
    services: Services, session: Session, model_id: int, client: str, positions: "Positions"
) -> "ClientData":
    """Return a client's training rows of a model, as `Family.client_rows`."""
    model = session.get_one(Model, model_id)
    return of(model).client_rows(services, session, model, client, positions)


def score(services: Services, task: ScoreTask) -> "tuple[SiloScores, int]":
    """Answer a judge's question for scores, as `Family.score`."""
    with services.reading() as session:
        kind = of(session.get_one(Model, task.model_id))
    return kind.score(services, task)


def _load(path: str) -> Family:
    found: Family = import_module(path).FAMILY
    return found
