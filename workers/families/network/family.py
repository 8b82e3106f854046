"""Deep models. Torch is loaded only for what computes, so that others can certify them."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from sqlmodel import Session

from lethe import canonical
from lethe.certificates.statement import Guarantee
from lethe.errors import LetheError
from models import Model, ModelVersion
from workers import install
from workers.families.base import Family
from workers.families.network import wording
from workers.families.network.blocks import decode_block, join
from workers.jobs.case import Case, Judge
from workers.jobs.context import JobContext
from workers.jobs.draft import Draft, sha256_hex
from workers.jobs.ladder import NextAttempt
from workers.jobs.lesson import ParsedUpload, StoredBlock
from workers.jobs.members import Member
from workers.jobs.update import Update, UpdateResult
from workers.judge.base import Report


class NoTorchError(LetheError):
    """This worker cannot train networks; another may, so the job waits."""

    slug, title, status = "no-torch", "torch is not installed", 503


class NetworkFamily(Family):
    """A network learns by training anew. It forgets by the method that a request asks for."""

    rooms = ("training/fedavg", "training/networks", "methods/network", "methods/certified")
    judge_rooms = ("training/replay", "judge")
    audited = True

    def check_here(self) -> None:
        """Raise NoTorchError where torch is not installed."""
        if find_spec("torch") is None:
            raise NoTorchError(
                f"this model's workers need torch: {install.with_extra('torch')}"
            )

    def read(self, model: Model, upload: bytes) -> ParsedUpload:
        """Return what an upload teaches. Raises RefusedError if it cannot be learned."""
        self.check_here()
        from workers.families.network import update

        return update.read(model, upload)

    def join(self, model: Model, stored: bytes, fresh: StoredBlock) -> StoredBlock:
        """Return the stored rows followed by the fresh ones. Raises RefusedError."""
        return join(decode_block(stored), fresh)

    def learn(
        self,
        job: JobContext,
        before: ModelVersion | None,
        lesson: ParsedUpload,
        salts: Mapping[str, bytes],
    ) -> UpdateResult:
        """Train from the initial weights on what is stored and the lesson."""
        self.check_here()
        from workers.families.network import update

        return update.learn(job, before, lesson, salts)

    def forget(
        self, job: JobContext, before: ModelVersion, members: Sequence[Member]
    ) -> Update:
        """Forget the members' records by the method they ask for, or retrain."""
        self.check_here()
        from workers.families.network import update

        return update.forget(job, before, members)

    def refit(self, job: JobContext) -> UpdateResult:
        """Make the version of a later attempt from what is stored. Raises RefusedError."""
        self.check_here()
        from workers.families.network import update

        return update.refit(job)

    def next_attempt(
        self, job: JobContext, session: Session, case: Case, report: Report
    ) -> NextAttempt | None:
        """Return the next attempt of the policy, or the retraining."""
        self.check_here()
        from workers.families.network import update

        return update.next_attempt(job, session, case, report)

    def compares(self, claim: str) -> bool:
        """A retraining is repeated, and an approximation compared with the model before."""
        return claim == wording.EMPIRICAL

    def prepare(self, job: JobContext, session: Session, case: Case, seed: bytes) -> Judge:
        """Load what an executed job left of a network; the result judges it."""
        self.check_here()
        from workers.families.network import update

        return update.prepare(job, session, case, seed)

    def guarantee(self, plan: Draft) -> Guarantee:
        """Return what is guaranteed of a network. Raises ValueError."""
        missing = int(plan.parameters.get("retrain.missing", "0"))
        return wording.guarantee(plan.claim, plan.bounds, missing=missing)

    def registered(self, model: Model) -> dict[str, str]:
        """Return the digests of policy and canary, where it was registered with them."""
        named = [name for name in ("policy", "canary") if name in model.config]
        return {name: sha256_hex(canonical.encode(model.config[name])) for name in named}


FAMILY: Family = NetworkFamily()
