"""The Celery application: a job's stages, silo tasks, method audits, and the sweep."""

import logging
from collections.abc import Callable
from time import monotonic

from celery import Celery

from app.dispatch import make_celery
from app.purge import retention
from app.service.context import Services
from app.settings import Settings
from workers import runtime
from workers.families import base as family
from workers.jobs import (
    certify,
    execute,
    routing,
    sweep,
    verify,
)
from workers.jobs.leases.lease import Turn

log = logging.getLogger(__name__)
app: Celery = make_celery(Settings())

SOON_S = 1.0
STAGES = {"execute": execute.run, "verify": verify.run, "certify": certify.run}


def quietly(run: Callable[[], object]) -> None:
    """Run a task; an error that escapes it is named, and its text kept out of the log.

    Celery would print message and traceback, in which a driver may quote a row. Nothing is
    lost: the job is in the database, and the sweep nudges it again.
    """
    try:
        run()
    except Exception as error:
        log.error("a task ended with %s; the sweep will try again", type(error).__name__)


def run_stages(services: Services, job_id: str, stage: str) -> None:
    """Run a stage of a job, and those that follow it while that is quick.

    Between two messages of a job those of all other jobs are handled: a request would wait for
    each of them three times. After SOON_S the next stage waits for its turn.
    """
    if routing.sent_on(services, job_id, stage):
        return
    turn = Turn(monotonic() + SOON_S, services.settings.lease_seconds)
    STAGES[stage](services, job_id, turn)
    while turn.lease is not None:
        STAGES[turn.lease.stage](services, job_id, turn)


@app.task(name="lethe.execute")
def execute_task(job_id: str) -> None:
    """Fit, learn or erase; then have it verified."""
    quietly(lambda: run_stages(runtime.services(), job_id, "execute"))


@app.task(name="lethe.verify")
def verify_task(job_id: str) -> None:
    """Judge what was executed; then have it certified."""
    quietly(lambda: run_stages(runtime.services(), job_id, "verify"))


@app.task(name="lethe.certify")
def certify_task(job_id: str) -> None:
    """Issue the certificate."""
    quietly(lambda: run_stages(runtime.services(), job_id, "certify"))


@app.task(name="lethe.answer")
def answer_task(silo_task_id: str) -> None:
    """Answer one client's part of a federated round, or a judge's question for scores."""
    from workers.silos import answer  # needs torch, which only the workers of silos must have

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
    """Compute one pair of an audit, whichever is next."""
    from workers.method_audits import run as audit_pair  # scipy's statistics

    def compute() -> None:
        services = runtime.services()
        if not routing.audit_sent_on(services, audit_id):
            audit_pair.run(services, audit_id)

    quietly(compute)


@app.task(name="lethe.retention")
def retention_task() -> None:
    """Destroy what was kept long enough."""
    quietly(lambda: retention.run(runtime.services()))


@app.task(name="lethe.sweep")
def sweep_task() -> None:
    """Nudge what is stuck and remove what is spent."""
    quietly(lambda: sweep.run(runtime.services()))
