"""Asking clients for what only they know of the records that are to go."""

import uuid
from datetime import timedelta

from sqlmodel import select

from app.ledger.journal import record_request_event
from app.ledger.sequencer import Transaction
from app.service.queue import PARKED
from models import ErasureRequest, FeatureBlock, Job, Model, Release

# An operator learns of a client's silence while there is still time to decide.
ESCALATION_MARGIN = timedelta(days=10)


def ask(
    tx: Transaction, model: Model, request: ErasureRequest, owned: dict[int, set[str]]
) -> bool:
    """Ask for what is missing to remove these records; return whether anything is.

    A block that goes as a whole needs no answer. Nothing is missing where rows are here.
    """
    if model.config["data"] != "statistics":
        return False
    missing = False
    for subject, ids in owned.items():
        block = tx.session.get_one(FeatureBlock, subject)
        if block.rows == len(ids):
            continue
        release = tx.session.exec(
            select(Release).where(
                Release.request_id == request.id, Release.subject_id == subject
            )
        ).first()
        if release is None:
            release = Release(
                id=str(uuid.uuid4()),
                request_id=request.id,
                model_id=model.id or 0,
                subject_id=subject,
                created_at=tx.now,
                escalates_at=request.due_at - ESCALATION_MARGIN,
            )
            tx.session.add(release)
        missing = missing or release.state == "open"
    tx.session.flush()
    return missing


def park(tx: Transaction, job: Job, request: ErasureRequest, why: str) -> None:
    """Let a job wait for its clients; its turn comes again with their answers."""
    job.stage, job.attempt, job.lease_until = PARKED, 0, None
    request.state = "awaiting-client"
    record_request_event(tx, request, "request.awaiting", {"for": why})
    tx.session.flush()
