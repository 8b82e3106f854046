"""Mending: rebuild a quarantined model from its rows, if no request to it has begun."""

import uuid

from sqlmodel import Session, col, select

from app import logs
from app.ledger.transaction import Transaction
from app.problems import ConflictError
from app.schemas.models import ModelView
from app.service.context import Services
from app.service.methods import last_step
from app.service.models import registry
from app.service.queue import MEND
from lethe.catalogue import data_of
from models import ErasureRequest, Job, Model


def mend(services: Services, ref: str) -> ModelView:
    """Queue the job that rebuilds a quarantined model; a second call queues no second job.

    A worker makes the next version from the stored rows, if they are those of the last version
    by the log, and returns the model to service. Otherwise the model stays quarantined, and its
    `failure` says why.

    Raises UnknownModelError: there is none; ConflictError: it is not quarantined, never had a
    version, keeps no rows here, or waits for a decision on a request.
    """

    def effect(tx: Transaction) -> tuple[ModelView, str]:
        session = tx.session
        model = registry.find(session, ref)
        job = _unfinished(session, model)
        if job is None:
            _require_mendable(session, model)
            assert model.id is not None
            job = Job(
                id=str(uuid.uuid4()),
                model_id=model.id,
                kind=MEND,
                call_id=logs.call_id(),
                stage="execute",
                step=last_step(model.config),  # which builds any model from its rows
                created_at=tx.now,
            )
            session.add(job)
            model.failure = None
            session.flush()
        return registry.show(model), job.id

    shown, job_id = services.committer.submit(effect)
    services.dispatcher.nudge(job_id)
    return shown


def _unfinished(session: Session, model: Model) -> Job | None:
    query = select(Job).where(
        Job.model_id == model.id, Job.kind == MEND, col(Job.done_at).is_(None)
    )
    return session.exec(query).first()


def _require_mendable(session: Session, model: Model) -> None:
    if model.state != "quarantined":
        raise ConflictError(f"the model is {model.state}: only a quarantined one can be mended")
    if model.current_version is None:
        raise ConflictError("the model never had a version: delete it and register it again")
    if not data_of(model.config).rebuildable:
        raise ConflictError(
            "the rows of a masked model were never here: register it again and have its "
            "clients send their statistics"
        )
    begun = (
        select(ErasureRequest.ref)
        .join(Job, col(Job.request_id) == col(ErasureRequest.id))
        .where(Job.model_id == model.id, col(Job.done_at).is_(None))
        .where(
            (col(ErasureRequest.state) == "needs-decision")
            | (col(Job.stage).in_(("verify", "certify")))
            | (col(Job.step) > 1)
        )
    )
    if (request := session.exec(begun.limit(1)).first()) is not None:
        raise ConflictError(
            f"request {request} has begun and its model is quarantined: `lethe request decide "
            "ID retry` rebuilds the model and verifies it"
        )
