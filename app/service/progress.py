"""How far the work on a request or a model is, as its worker last told."""

from sqlmodel import Session, col, select

from app.schemas.progress import ProgressView
from models import Job, Model

UNITS = {
    "training": "rounds",
    "step": "steps",
    "recovery": "rounds",
    "retraining": "rounds",
    "repetition": "rounds",
    "references": "models",
}


def progress_of(job: Job) -> ProgressView | None:
    """Return how far a job is, None where it is done or its worker told nothing yet."""
    if job.done_at is not None or job.phase is None:
        return None
    return ProgressView.model_validate(
        {
            "phase": job.phase,
            "done": job.phase_done,
            "total": job.phase_total,
            "unit": UNITS[job.phase],
        }
    )


def training_progress(session: Session, model: Model) -> ProgressView | None:
    """Return how far the training is that learns rows, None where none is going on.

    Never that of an erasure: it is for whoever holds the request.
    """
    learning = select(Job).where(
        Job.model_id == model.id, Job.kind == "learn", col(Job.done_at).is_(None)
    )
    found = (progress_of(job) for job in session.exec(learning.order_by(col(Job.seq))))
    return next((shown for shown in found if shown is not None), None)
