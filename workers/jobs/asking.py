"""Asking clients for what only they know of the records that are to go."""

import uuid
from collections.abc import Collection, Mapping
from datetime import timedelta

from sqlmodel import Session, select

from app.ledger.journal import record_request_event
from app.ledger.sequencer import Transaction
from app.service.queue import PARKED
from models import ErasureRequest, FeatureBlock, Job, Release
from workers.errors import RefusedError

# An operator learns of a client's silence while there is still time to decide.
ESCALATION_MARGIN = timedelta(days=10)


class AnswerError(RefusedError):
    """A client's answer that its block cannot have held. `release`: id of the question."""

    def __init__(self, release: str) -> None:
        self.release = release
        super().__init__("a client released what it cannot have contributed: it is asked anew")


def ask(
    tx: Transaction,
    request: ErasureRequest,
    owned: Mapping[int, set[str]],
    *,
    gone: Mapping[int, set[str]],
    whole: Collection[int],
) -> bool:
    """Ask for what is missing to remove these records; return whether anything is.

    A block that goes as a whole needs no answer: by this request alone, with what is `gone`
    earlier in the same update, or because a person decided it (`whole`, ids of subjects).
    """
    missing = False
    for subject, ids in owned.items():
        block = tx.session.get_one(FeatureBlock, subject)
        if subject in whole or block.rows == len(ids | gone.get(subject, set())):
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
                model_id=request.model_id,
                subject_id=subject,
                created_at=tx.now,
                escalates_at=request.due_at - ESCALATION_MARGIN,
            )
            tx.session.add(release)
        elif release.state == "done":  # its records went another way, and there are more now
            release.state = "open"
        missing = missing or release.state == "open"
    tx.session.flush()
    return missing


def dropped_subjects(session: Session, request_id: str) -> set[int]:
    """Return the subjects whose blocks an operator decided to remove for a request."""
    query = select(Release.subject_id).where(
        Release.request_id == request_id, Release.state == "dropped"
    )
    return set(session.exec(query))


def park(tx: Transaction, job: Job, request: ErasureRequest, why: str) -> None:
    """Let a job wait for its clients; its turn comes again with their answers."""
    job.stage, job.tries, job.deaths, job.lease_until = PARKED, 0, 0, None
    request.state, request.reason = "awaiting-client", None
    record_request_event(tx, request, "request.awaiting", {"for": why})
    tx.session.flush()
