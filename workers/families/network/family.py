"""Deep models. Torch is loaded only for computing, so that other workers can certify."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from sqlmodel import Session

from app.service.context import Services
from lethe import canonical
from lethe.certificates.statement import Guarantee
from models import Model, ModelVersion
from workers.cases.case import ExecutedJob, Judges, NextAttempt
from workers.families.base import AuditedMethod, Family, LacksLibraryError
from workers.families.network import logged, wording
from workers.families.network.data.blocks import decode_block, join
from workers.judge.base import Report
from workers.leases.lease import JobContext
from workers.lineage.chain import BatchMember
from workers.silos.score_task import ScoreTask
from workers.silos.scores import SiloScores
from workers.updates.draft import Draft, sha256_hex
from workers.updates.update import ParsedUpload, StoredBlock, Update, UpdateResult

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from workers.silos.message import Positions
    from workers.training.fedavg.base import ClientData


class NoTorchError(LacksLibraryError):
    """This worker cannot train networks; another may, so the job waits."""

    slug, title = "no-torch", "torch is not installed"
    modules, extra, named = ("torch",), "torch", "torch"


class NetworkFamily(Family):
    """A network learns by retraining. It forgets by the method that a request names."""

    lacks = NoTorchError
    rooms = ("training/fedavg", "training/networks", "methods/network", "methods/certified")
    judge_rooms = ("training/replay", "judge")
    audited = True
    trains_networks = True
    formats = ("onnx", "torch")

    def read(self, model: Model, upload: BinaryIO) -> ParsedUpload:
        """Parse an upload. Raises RefusedError if it cannot be learned."""
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
        upload: ParsedUpload,
        salts: "NDArray[np.uint8]",
    ) -> UpdateResult:
        """Train from the initial weights on the stored rows and the upload."""
        self.check_here()
        from workers.families.network import update

        return update.learn(job, before, upload, salts)

    def forget(
        self, job: JobContext, before: ModelVersion, members: Sequence[BatchMember]
    ) -> Update:
        """Forget the members' records by the method that they name, or retrain."""
        self.check_here()
        from workers.families.network import update

        return update.forget(job, before, members)

    def refit(self, job: JobContext) -> UpdateResult:
        """Make the version of a later attempt from stored data. Raises RefusedError."""
        self.check_here()
        from workers.families.network import attempt

        return attempt.run(job)

    def next_attempt(
        self, job: JobContext, session: Session, case: ExecutedJob, report: Report
    ) -> NextAttempt | None:
        """Return the next attempt of the policy, or the retraining."""
        self.check_here()
        from workers.families.network import ladder

        return ladder.next_attempt(job, session, case, report)

    def compares(self, claim: str) -> bool:
        """A retraining is repeated; only an approximation is compared with the model before."""
        return claim == wording.EMPIRICAL

    def draw_seed(self, job: JobContext, case: ExecutedJob) -> bytes:
        """Log the seed of a test by samples: another draw could give a better result.

        A wrong head passes another judgement with only one in 2^59 seeds.
        """
        if case.plan.claim != wording.EMPIRICAL:
            return super().draw_seed(job, case)
        return logged.draw_seed(job, case)

    def prepare(
        self, job: JobContext, session: Session, cases: Sequence[ExecutedJob], seed: bytes
    ) -> Judges:
        """Load the results of an executed job on a network; the returned function judges it."""
        self.check_here()
        from workers.families.network import case as network_case

        (case,) = cases
        judge = network_case.prepare(job, session, case, seed)
        return lambda: [judge()]

    def guarantee(self, plan: Draft) -> Guarantee:
        """Return the guarantee for a network. Raises ValueError."""
        missing = int(plan.parameters.get("retrain.missing", "0"))
        return wording.guarantee(plan.claim, plan.bounds, missing=missing)

    def registered(self, model: Model) -> dict[str, str]:
        """Return the digests of policy and canary, if it was registered with them."""
        named = [name for name in ("policy", "canary") if name in model.config]
        return {name: sha256_hex(canonical.encode(model.config[name])) for name in named}

    def client_rows(
        self,
        services: Services,
        session: Session,
        model: Model,
        client: str,
        positions: "Positions",
    ) -> "ClientData":
        """Return a client's stored training rows and those that are being learned."""
        self.check_here()
        from workers.families.network.data import rows

        return rows.client_rows(services, session, model, client, positions)

    def score(self, services: Services, task: ScoreTask) -> tuple[SiloScores, int]:
        """Return the scores of a silo's clients before and after an erasure."""
        self.check_here()
        from workers.families.network.scores.answer import score

        return score(services, task)

    def audited_method(
        self, services: Services, session: Session, model: Model, settings: Mapping[str, str]
    ) -> AuditedMethod:
        """Return a registered method with the stored rows. Raises RefusedError."""
        self.check_here()
        from workers.families.network import audited

        return audited.load(services, session, model, settings)

    def predict_held_out(
        self,
        services: Services,
        model: Model,
        file: bytes,
        features: "NDArray[Any]",
    ) -> "NDArray[Any] | None":
        """Return the class with the largest logit, for masks of each pixel."""
        self.check_here()
        from workers.families.network.training import device_of
        from workers.training.fedavg.client.data import tensors_of
        from workers.training.fedavg.evaluate import logits_of
        from workers.training.networks.weights import decode_weights

        network, weights = decode_weights(file)
        logits = logits_of(network, weights, tensors_of(features), device_of(services))
        found: NDArray[Any] = logits.argmax(1).numpy()
        return found

    def export(
        self, artifact: bytes, form: str, classes: Sequence[str], config: Mapping[str, Any]
    ) -> bytes:
        """Return the network for other programs. Raises RefusedError."""
        self.check_here()
        from workers.families.network.export import export

        return export(artifact, form)


FAMILY: Family = NetworkFamily()
