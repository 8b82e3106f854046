"""The interface of a kind of model, and the registry of all kinds.

The rest of `workers` imports only this file. A family is a folder with a module `family` that
defines FAMILY, and one line in FAMILIES.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from sqlmodel import Session

from app.ledger.transaction import Transaction
from app.service.context import Services
from app.service.desk.people import RecordIdentity
from lethe.certificates.statement import Guarantee
from lethe.errors import LetheError
from models import Job, Model, ModelVersion
from workers import libraries
from workers.cases.case import ExecutedJob, Judges, NextAttempt
from workers.errors import RefusedError
from workers.judge.base import Report
from workers.leases.lease import JobContext
from workers.lineage.chain import BatchMember
from workers.silos.score_task import ScoreTask
from workers.updates.draft import Draft, ShreddedArtifact
from workers.updates.update import Owner, ParsedUpload, StoredBlock, Update, UpdateResult

if TYPE_CHECKING:  # these load torch, which only some workers have, or numerical libraries
    import numpy as np
    from numpy.typing import NDArray

    from workers.audit_pairs.pair import Pair
    from workers.silos.message import Positions
    from workers.silos.scores import SiloScores
    from workers.training.fedavg.base import ClientData

# Keyed by the family that a model is registered with, or by family and location of the rows.
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


class LacksLibraryError(LetheError):
    """This worker lacks a library of a family; another may have it, so the job waits.

    modules: what is imported. extra: what installs them. named: the library in the message.
    """

    status = 503
    modules: tuple[str, ...]
    extra: str
    named: str


class UnknownFamilyError(LetheError):
    """This worker has no such kind of model; a newer one may, so the job waits."""

    slug, title, status = "unknown-family", "This worker knows no such family", 503


@dataclass(frozen=True, slots=True, eq=False)
class JointUpdate:
    """An update that adds records and executes waiting erasures in one version.

    base: number of the version that it was computed from. owners: of the added records, in
    their order; people: their identities. Two effects of the family's own belong to the
    transaction that publishes it: destroy_before, which returns what it destroyed of the model
    before, and finish, after the version is published.
    """

    base: int | None
    before: ModelVersion | None
    members: Sequence[BatchMember]
    update: Update
    owners: Mapping[str, Owner]
    people: Sequence[RecordIdentity]
    destroy_before: Callable[[Transaction], Sequence[ShreddedArtifact]]
    finish: Callable[[Transaction, Model], None]


@dataclass(frozen=True, slots=True)
class OwnJob:
    """A kind of job that only one family has: its computation, and what ends it as failed.

    run: raises RefusedError with the reason if it declines. fail: called with (services,
    transaction, job, reason) in the transaction that ends the job.
    """

    run: Callable[[JobContext], JointUpdate]
    fail: Callable[[Services, Transaction, Job, str], None]


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What an index finds for held-out rows; queries: how many were looked up.

    recall: share of the `neighbours` nearest rows of a query that the index finds. itself:
    share of its own rows that are the first hit of a search for their vectors.
    """

    queries: int
    neighbours: int
    recall: float
    itself: float


@dataclass(frozen=True, slots=True)
class AuditedMethod:
    """A method, its settings and the stored rows, as a method audit runs them in memory.

    version: of the method. environment: what must match for equal bits. run_pair: computes the
    pair with a given number.
    """

    version: str
    environment: Mapping[str, str]
    run_pair: "Callable[[int], Pair]"


class Family(Protocol):
    """What a kind of model can do. Nothing is written unless a `Transaction` is given.

    rooms: packages of `workers` whose code makes a model; judge_rooms: those whose code judges
    it. Their digests are in the certificate. formats: export formats of a version, besides its
    own file. audited: whether a certificate cites audits of the method. judges_together:
    whether the requests of one version are judged together, because they share everything but
    their own retained set and purge. decidable: whether an operator can decide on a request
    that did not pass. own_jobs: by kind, the jobs that only this family has. trains_networks:
    whether its jobs use a GPU if there is one. lacks: what `check_here` raises.

    Methods that compute raise RefusedError with the reason if they decline.
    """

    rooms: tuple[str, ...]
    judge_rooms: tuple[str, ...]
    audited: bool
    formats: tuple[str, ...] = ()
    judges_together: bool = False
    decidable: bool = True
    trains_networks: bool = False
    lacks: type[LacksLibraryError] | None = None
    own_jobs: Mapping[str, OwnJob] = MappingProxyType({})

    def check_here(self) -> None:
        """Raise the error `lacks` if this worker lacks a library that the family needs."""
        lacks = self.lacks
        if lacks is not None and any(find_spec(name) is None for name in lacks.modules):
            command = libraries.with_extra(lacks.extra)
            raise lacks(f"this model's workers need {lacks.named}: {command}")

    def read(self, model: Model, upload: BinaryIO) -> ParsedUpload:
        """Parse an accepted upload, which may be larger than memory.

        Raises RefusedError if it cannot be learned.
        """

    def join(self, model: Model, stored: bytes, fresh: StoredBlock) -> StoredBlock:
        """Return an owner's stored block with the fresh rows added. Raises RefusedError."""

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

        Raises AnswerError if a client must answer again.
        """

    def refit(self, job: JobContext) -> UpdateResult:
        """Return the version of the lease's attempt; the last one retrains from the rows."""

    def next_attempt(
        self, job: JobContext, session: Session, case: ExecutedJob, report: Report
    ) -> NextAttempt | None:
        """Return the attempt after a judgement that was not PASS; None: a person decides."""

    def why_ended(self, result: str, failed: str) -> str:
        """Return why a request that did not pass ends here instead of escalating.

        failed: the checks that did not pass, as text.
        """
        return f"verification {result} also after a refit: {failed}"

    def compares(self, claim: str) -> bool:
        """Return whether a repair with a claim is compared with the model before the update.

        If not, the sealed model from before is destroyed with the repair.
        """

    def draw_seed(self, job: JobContext, case: ExecutedJob) -> bytes:
        """Return 32 random bytes for a judgement, unpredictable when the job was executed.

        A family whose verdict could improve by drawing again logs them before use.
        """
        return os.urandom(32)

    def prepare(
        self, job: JobContext, session: Session, cases: Sequence[ExecutedJob], seed: bytes
    ) -> Judges:
        """Load the results of executed jobs of one version; the returned function judges them.

        cases: one, unless the family `judges_together`. seed: as returned by `draw_seed`.
        """

    def guarantee(self, plan: Draft) -> Guarantee:
        """Return a certificate's guarantee as text. Raises ValueError for an unknown claim."""

    def registered(self, model: Model) -> dict[str, str]:
        """Return the digests of a registration that stand in its certificates, by name."""

    def registered_with_rows(self, model: Model) -> bool:
        """Return whether a model was registered with rows, so that it fails if they do.

        A model that waits for its clients' statistics can wait for others.
        """
        return True

    def asks(self, model: Model) -> bool:
        """Return whether only clients know which part of a block belongs to given records."""
        return False

    def park(self, job: JobContext) -> bool:
        """Park an erasure that cannot be executed alone; return whether it is parked.

        Raises LeaseLostError if another worker holds the job.
        """
        return False

    def certified(self, services: Services, tx: Transaction, request_id: str) -> None:
        """Destroy what was kept to certify a request, which has just been certified."""
        return

    def sweep(self, services: Services) -> None:
        """End waits that timed out, each in its own transaction."""
        return

    def export(
        self, artifact: bytes, form: str, classes: Sequence[str], config: Mapping[str, Any]
    ) -> bytes:
        """Return a version's file in one of `formats`, for programs without Lethe's code.

        classes, config: of the model's registration. Raises RefusedError.
        """
        raise RefusedError(
            "this kind of model is exported in no other format: download the native file"
        )

    def predict_held_out(
        self,
        services: Services,
        model: Model,
        file: bytes,
        features: "NDArray[Any]",
    ) -> "NDArray[Any] | None":
        """Return the predictions of a version's file for rows (n, …); None if not measured.

        Class indices in the shape of the labels, or numbers (n,) for a model without classes;
        (parts, n) for parts that predict separately, with -1 or NaN for one without rows.
        Raises RefusedError.
        """
        return None

    def retrieve_held_out(
        self, services: Services, model: Model, file: bytes, features: "NDArray[Any]"
    ) -> Retrieval | None:
        """Return what an index finds for held-out rows (n, d); None if it is not an index.

        Raises RefusedError.
        """
        return None

    def beside(self, artifact: bytes) -> Mapping[str, bytes]:
        """Return files that accompany every export of a version's file, by their suffixes.

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
        """Return a client's training rows, as its silo uses them in a round.

        positions: which of them, in their order; None: all. Raises RefusedError.
        """
        raise RefusedError(NO_SILOS)

    def score(self, services: Services, task: ScoreTask) -> "tuple[SiloScores, int]":
        """Return the scores of a silo's clients for two models, and the number of classes.

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
    """Return the family of a model with this configuration.

    Raises UnknownFamilyError if this worker has no family of its name.
    """
    name = str(config.get("family", "ridge"))
    path = FAMILIES.get(f"{name}-{config.get('data')}", FAMILIES.get(name))
    if path is None:
        raise UnknownFamilyError(
            f"this worker does not know the model's family {name}: update the workers"
        )
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
    """Answer a judge's request for scores, as `Family.score`."""
    with services.reading() as session:
        kind = of(session.get_one(Model, task.model_id))
    return kind.score(services, task)


def _load(path: str) -> Family:
    found: Family = import_module(path).FAMILY
    return found
