"""The kinds of model: what a job asks of each, and where each is found.

A job knows this file alone. A family is a folder with a module `family` that holds FAMILY, and
one line in FAMILIES.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Protocol

from sqlmodel import Session

from app.ledger.sequencer import Transaction
from app.service.context import Services
from lethe.certificates.statement import Guarantee
from lethe.errors import LetheError
from models import Model, ModelVersion
from workers.jobs.case import Case, Judge
from workers.jobs.context import JobContext
from workers.jobs.draft import Draft
from workers.jobs.ladder import NextAttempt
from workers.jobs.lesson import ParsedUpload, StoredBlock
from workers.jobs.members import Member
from workers.jobs.update import Update, UpdateResult
from workers.judge.base import Report

# By the family that a model is registered with, or by family and where the rows are.
FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "ridge": "workers.families.ridge.family",
        "ridge-masked": "workers.families.masked.family",
        "network": "workers.families.network.family",
    }
)


class UnknownFamilyError(LetheError):
    """This worker knows no such kind of model; a newer one may, so the job waits."""

    slug, title, status = "unknown-family", "This worker knows no such family", 503


class Family(Protocol):
    """What a kind of model can do. Nothing is written unless a `Transaction` is given.

    rooms: of `workers`, whose code made a model what it is; judge_rooms: whose code judges it.
    Their digests stand in the certificate. audited: whether a certificate cites the audits of
    the method. decidable: whether an operator can decide on what did not pass. own_jobs: what
    executes the kinds of job that only this family has.

    What computes raises RefusedError where it declines, and the message says why.
    """

    rooms: tuple[str, ...]
    judge_rooms: tuple[str, ...]
    audited: bool
    decidable: bool = True
    own_jobs: Mapping[str, Callable[[JobContext], None]] = MappingProxyType({})

    def check_here(self) -> None:
        """Raise a LetheError if this worker lacks what the family computes with."""
        return

    def read(self, model: Model, upload: bytes) -> ParsedUpload:
        """Return what an accepted upload teaches."""

    def join(self, model: Model, stored: bytes, fresh: StoredBlock) -> StoredBlock:
        """Return an owner's stored block with what came since. Raises RefusedError."""

    def learn(
        self,
        job: JobContext,
        before: ModelVersion | None,
        lesson: ParsedUpload,
        salts: Mapping[str, bytes],
    ) -> UpdateResult:
        """Return the version after a lesson, whose records get these salts."""

    def forget(
        self, job: JobContext, before: ModelVersion, members: Sequence[Member]
    ) -> Update:
        """Return the version without the members' records.

        Raises AnswerError where a client must answer anew.
        """

    def refit(self, job: JobContext) -> UpdateResult:
        """Return the version of the lease's attempt, the last of which makes the model anew."""

    def next_attempt(
        self, job: JobContext, session: Session, case: Case, report: Report
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

    def prepare(self, job: JobContext, session: Session, case: Case, seed: bytes) -> Judge:
        """Load what an executed job left to be judged; the result judges it.

        seed: 32 random bytes that nobody knew when the job was executed.
        """

    def guarantee(self, plan: Draft) -> Guarantee:
        """Return what a certificate guarantees, in words. Raises ValueError for no claim."""

    def registered(self, model: Model) -> dict[str, str]:
        """Return the digests of a registration that stand in its certificates, by name."""

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


def of(model: Model) -> Family:
    """Return the family of a model.

    Raises:
        UnknownFamilyError: This worker has none of its name.
    """
    name = str(model.config.get("family", "ridge"))
    path = FAMILIES.get(f"{name}-{model.config.get('data')}", FAMILIES.get(name))
    if path is None:
        raise UnknownFamilyError(f"update the workers: they know no family {name}")
    return _load(path)


def every() -> Iterator[Family]:
    """Yield each family once."""
    yield from map(_load, FAMILIES.values())


def _load(path: str) -> Family:
    found: Family = import_module(path).FAMILY
    return found
