"""What the verifier is given, by the kind of model, and what it said.

It never sees the method; what it must know of the destroyed comes from the sealed draft.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlmodel import Session, select

from app.service.context import Services
from models import Job, Model, ModelVersion
from workers.jobs import (
    draft,
    versions,
)
from workers.jobs.draft import Draft
from workers.jobs.lease import Lease
from workers.judge.base import Report


@dataclass(frozen=True, slots=True)
class Case:
    """An executed job, its model, and the versions on both sides of what it did."""

    plan: Draft
    model: Model
    before: ModelVersion
    after: ModelVersion


@dataclass(frozen=True, slots=True)
class Judged:
    """A verifier's report, and further measurements for the evidence, as strings.

    scores: the scores file that the report can be computed from again, of samples only.
    """

    verifier: str
    version: str
    report: Report
    details: Mapping[str, str]
    scores: bytes | None = None


# Runs without a session: a training that is repeated takes minutes.
Judge = Callable[[], Judged]


def load(services: Services, session: Session, lease: Lease) -> Case:
    """Load which versions an executed job is about."""
    job = session.exec(select(Job).where(Job.id == lease.job_id)).one()
    plan = draft.load(services, session, job)
    return Case(
        plan=plan,
        model=session.get_one(Model, lease.model_id),
        before=versions.numbered(session, lease.model_id, plan.before_number),
        # The version of the update that removed the records, or of a refit that replaced it.
        after=versions.numbered(session, lease.model_id, plan.number),
    )
