"""The Celery application of the workers: three stages of a job, and the sweep."""

from celery import Celery

from app.dispatch import make_celery
from app.settings import Settings
from workers import runtime
from workers.tasks import certify, execute, sweep, verify

app: Celery = make_celery(Settings())


@app.task(name="lethe.execute")
def execute_task(job_id: str) -> None:
    """Fit, learn or erase; then have it verified."""
    execute.run(runtime.services(), job_id)


@app.task(name="lethe.verify")
def verify_task(job_id: str) -> None:
    """Judge what was executed; then have it certified."""
    verify.run(runtime.services(), job_id)


@app.task(name="lethe.certify")
def certify_task(job_id: str) -> None:
    """Issue the certificate."""
    certify.run(runtime.services(), job_id)


@app.task(name="lethe.sweep")
def sweep_task() -> None:
    """Nudge what is stuck and remove what is spent."""
    sweep.run(runtime.services())
