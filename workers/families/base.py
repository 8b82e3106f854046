"""The kinds of model, and what a job asks of each: read, learn, forget, fit again."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Protocol

from sqlmodel import Session

from app.service.context import Services
from app.service.methods import is_network
from lethe.errors import LetheError
from models import Model, ModelVersion
from workers import install
from workers.families.ridge import update as ridge_update
from workers.jobs.batch import Member
from workers.jobs.case import Case, Judge
from workers.jobs.ladder import Climb
from workers.jobs.lease import Lease
from workers.jobs.lesson import Lesson
from workers.jobs.update import Made, Update
from workers.judge.base import Report


class NoTorchError(LetheError):
    """This worker cannot train networks; another may, so the job waits."""

    slug, title, status = "no-torch", "torch is not installed", 503


class Family(Protocol):
    """What a kind of model can do. Nothing is written; RefusedError says why not."""

    def read(self, model: Model, upload: bytes) -> Lesson:
        """Return what an accepted upload teaches."""

    def learn(
        self,
        services: Services,
        lease: Lease,
        model: Model,
        before: ModelVersion | None,
        lesson: Lesson,
        salts: Mapping[str, bytes],
    ) -> Made:
        """Return the version after a lesson, whose records get these salts."""

    def forget(
        self,
        services: Services,
        lease: Lease,
        model: Model,
        before: ModelVersion,
        members: Sequence[Member],
    ) -> Update:
        """Return the version without the members' records."""

    def refit(self, services: Services, lease: Lease, model: Model) -> Made:
        """Return the version of the lease's rung, the last of which makes the model anew."""

    def climb(
        self, services: Services, session: Session, lease: Lease, case: Case, report: Report
    ) -> Climb | None:
        """Return what comes after a judgement that was no PASS, None for a person."""

    def prepare(
        self, services: Services, session: Session, lease: Lease, case: Case, seed: bytes
    ) -> Judge:
        """Load what an executed job left to be judged; the result judges it.

        seed: 32 random bytes that nobody knew when the job was executed.
        """


def of(model: Model) -> Family:
    """Return the family of a model.

    Raises:
        NoTorchError: It is a network, and this worker is installed without torch.
    """
    if not is_network(model.config):
        return ridge_update
    if find_spec("torch") is None:
        raise NoTorchError(f"this model's workers need torch: {install.with_extra('torch')}")
    from workers.families.network import update as network_update

    return network_update
