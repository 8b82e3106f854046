"""The Celery application: a job's stages, silo tasks, method audits, and the sweep."""

import logging
from collections.abc import Callable

from celery import Celery

from app.dispatch import make_celery
from app.settings import Settings
from workers import runtime
from workers.families import base as family
from workers.jobs import (
    certify,
    execute,
    sweep,
    verify,
)

log = logging.getLogger(__name__)
app: Celery = make_celery(Settings())


def quietly(run: Callable[[], object]) -> None:
    """Run a task; an error that escapes it is named, and its text kept out of the log.

    Celery would print message and traceback, in which a driver may quote a row. Nothing is
    lost: the job is in the database, and the sweep nudges it again.
    """
    try:
        run()
    except Exception as error:
        log.error("a task ended with %s; the sweep will try again", type(error).__name__)


@app.task(name="lethe.execute")
def execute_task(job_id: str) -> None:
    """Fit, learn or erase; then have it verified."""
    quietly(lambda: execute.run(runtime.services(), job_id))


@app.task(name="lethe.verify")
def verify_task(job_id: str) -> None:
    """Judge what was executed; then have it certified."""
    quietly(lambda: verify.run(runtime.services(), job_id))


@app.task(name="lethe.certify")
def certify_task(job_id: str) -> None:
    """Issue the certificate."""
    quietly(lambda: certify.run(runtime.services(), job_id))


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

    quietly(lambda: audit_pair.run(runtime.services(), audit_id))


@app.task(name="lethe.sweep")
def sweep_task() -> None:
    """Nudge what is stuck and remove what is spent."""
    quietly(lambda: sweep.run(runtime.services()))
