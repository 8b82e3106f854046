"""The Celery application: a job's stages, silo tasks, method audits, and the sweep."""

import logging
from collections.abc import Callable
from math import inf
from time import monotonic

from celery import Celery

from app.dispatch import make_celery
from app.purge import retention
from app.service.context import Services
from app.settings import Settings
from workers import runtime
from workers.families import base as family
from workers.jobs import certify, execute, routing, sweep, verify
from workers.leases.lease import Turn

log = logging.getLogger(__name__)
app: Celery = make_celery(Settings())

SOON_S = 1.0
STAGES = {"execute": execute.run, "verify": verify.run, "certify": certify.run}


def quietly(run: Callable[[], object]) -> None:
    """Run a task; log an escaping error by its class name only.

    Celery would print message and traceback, in which a driver may quote a row. Nothing is
    lost: the job is in the database, and the sweep nudges it again.
    """
    try:
        run()
    except Exception as error:
        log.error("a task ended with %s; the sweep will try again", type(error).__name__)


class Sweeps:
    """The sweeps of this process.

    While every worker is busy they pile up in the queue. No message expires (`app.nudges`), so
    those that were waiting behind the first are left out.
    """

    def __init__(self) -> None:
        self._ended = -inf  # when the last one ended, on the monotonic clock

    def run(self, services: Services) -> None:
        """Sweep, unless the last sweep ended less than half an interval ago."""
        if monotonic() - self._ended < services.settings.sweep_seconds / 2:
            return
        try:
            sweep.run(services)
        finally:
            self._ended = monotonic()


sweeps = Sweeps()


def run_stages(services: Services, job_id: str, stage: str) -> None:
    """Run a stage of a job, and the following stages while they are quick.

    Between two messages of one job, the queue handles messages of all other jobs: a request
    would wait for them three times. After SOON_S the next stage is queued as a message of its
    own.
    """
    if routing.sent_on(services, job_id, stage):
        return
    turn = Turn(monotonic() + SOON_S, services.settings.lease_seconds)
    STAGES[stage](services, job_id, turn)
    while turn.lease is not None:
        STAGES[turn.lease.stage](services, job_id, turn)


@app.task(name="lethe.execute")
def execute_task(job_id: str) -> None:
    """Fit, learn or erase; then queue the verification."""
    quietly(lambda: run_stages(runtime.services(), job_id, "execute"))


@app.task(name="lethe.verify")
def verify_task(job_id: str) -> None:
    """Judge what was executed; then queue the certification."""
    quietly(lambda: run_stages(runtime.services(), job_id, "verify"))


@app.task(name="lethe.certify")
def certify_task(job_id: str) -> None:
    """Issue the certificate."""
    quietly(lambda: run_stages(runtime.services(), job_id, "certify"))


@app.task(name="lethe.answer")
def answer_task(silo_task_id: str) -> None:
    """Answer one client's part of a federated round, or a judge's question for scores."""
    from workers.silos import answer  # needs torch, which only silo workers must have

    quietly(
        lambda: answer.run(
            runtime.services(),
            silo_task_id,
            family.client_rows,
            family.score,
            runtime.silos(),
        )
    )


@app.task(name="lethe.audit")
def audit_task(audit_id: str) -> None:
    """Compute the next pair of a method audit."""
    from workers.method_audits import run as audit_pair  # scipy's statistics

    def compute() -> None:
        services = runtime.services()
        if not routing.audit_sent_on(services, audit_id):
            audit_pair.run(services, audit_id)

    quietly(compute)


@app.task(name="lethe.retention")
def retention_task() -> None:
    """Destroy what is past its retention period."""
    quietly(lambda: retention.run(runtime.services()))


@app.task(name="lethe.sweep")
def sweep_task() -> None:
    """Nudge stalled jobs and remove leftovers."""
    quietly(lambda: sweeps.run(runtime.services()))
