"""Models: register, contribute to, list, download."""

import hashlib
import secrets
import uuid

from sqlmodel import Session, col, select

from app import canonical
from app.ledger.journal import record_model_event
from app.ledger.sequencer import Transaction
from app.schemas.base import Page
from app.schemas.models import ContributionView, ModelView, NewModel, VersionView
from app.service.context import Services
from app.service.problems import (
    ConflictError,
    ModelNotReadyError,
    NotFoundError,
    UnknownModelError,
)
from app.service.requests import use_signature
from app.service.scope import chunks, open_tombstone_key, record_tag
from app.service.upload import CheckedUpload
from app.signing.errors import KeyNotEntitledError
from app.signing.http import SignedBy
from models import Contribution, Job, Model, ModelVersion, Record, Tombstone


def register(services: Services, wanted: NewModel, upload: CheckedUpload) -> ModelView:
    """Record a model and its first training set, and queue the fit.

    Raises:
        ConflictError: The reference is taken.
    """
    config = {
        "dimension": len(wanted.exponents),
        "exponents": wanted.exponents,
        "bits": wanted.bits,
        "penalty": wanted.penalty.hex(),  # exactly, whatever reads it
    }
    pinned = {
        "config": config,
        "classes": wanted.classes,
        "method": wanted.method,
        "extractor": wanted.extractor.model_dump(),
    }
    digest = hashlib.sha256(canonical.encode(pinned)).hexdigest()
    tombstone_key = services.master.seal(
        secrets.token_bytes(32), aad=f"tombstone|{wanted.ref}".encode()
    )

    def effect(tx: Transaction) -> tuple[ModelView, str]:
        if tx.session.exec(select(Model).where(Model.ref == wanted.ref)).first() is not None:
            raise ConflictError("a model of this reference exists: choose another")
        model = Model(
            ref=wanted.ref,
            method=wanted.method,
            config=config,
            classes=wanted.classes,
            extractor=wanted.extractor.model_dump(),
            tombstone_key=tombstone_key,
            created_at=tx.now,
        )
        tx.session.add(model)
        tx.session.flush()
        index = record_model_event(tx, wanted.ref, "model.registered", {"config": digest})
        _, job = _queue(services, tx, model, upload, None, index)
        return show(model), job.id

    shown, job_id = services.committer.submit(effect)
    services.dispatcher.nudge(job_id)
    return shown


def contribute(
    services: Services, signed: SignedBy, ref: str, upload: CheckedUpload
) -> ContributionView:
    """Queue rows that a client adds to a model.

    Raises:
        KeyNotEntitledError: The key is no client's, or another client's.
        UnknownModelError: No such model.
        ModelNotReadyError: The model has no version to add to.
        ConflictError: A record id is in the training set, or was erased from it.
    """

    def effect(tx: Transaction) -> tuple[ContributionView, str]:
        key = use_signature(tx, signed)
        model = find(tx.session, ref)
        if key.role != "client":
            raise KeyNotEntitledError("contributions are signed with a key of role client")
        if key.client is not None and set(upload.clients) != {key.client}:
            raise KeyNotEntitledError("this key is bound to one client: send only its rows")
        if model.state != "ready":
            raise ModelNotReadyError("the model has no fitted version yet: try again later")
        _refuse_known(services, tx.session, model, upload.records)
        index = record_model_event(tx, ref, "contribution.received", {})
        row, job = _queue(services, tx, model, upload, key.keyid, index)
        return show_contribution(model, row), job.id

    shown, job_id = services.committer.submit(effect)
    services.dispatcher.nudge(job_id)
    return shown


def _queue(
    services: Services,
    tx: Transaction,
    model: Model,
    upload: CheckedUpload,
    keyid: str | None,
    log_index: int,
) -> tuple[Contribution, Job]:
    assert model.id is not None
    artifact = services.artifacts.put(tx.session, "upload", upload.data)
    row = Contribution(
        id=str(uuid.uuid4()),
        model_id=model.id,
        keyid=keyid,
        upload_id=artifact.id,
        rows=upload.rows,
        log_index=log_index,
        received_at=tx.now,
    )
    tx.session.add(row)
    tx.session.flush()
    job = Job(
        id=str(uuid.uuid4()),
        model_id=model.id,
        kind="learn",
        contribution_id=row.id,
        stage="execute",
        created_at=tx.now,
    )
    tx.session.add(job)
    return row, job


def _refuse_known(
    services: Services, session: Session, model: Model, records: list[str]
) -> None:
    key = open_tombstone_key(services.master, model)
    for chunk in chunks(records):
        held = select(Record.id).where(
            Record.model_id == model.id, col(Record.record).in_(chunk)
        )
        tags = [record_tag(key, record) for record in chunk]
        erased = select(Tombstone.tag).where(
            Tombstone.model_id == model.id, col(Tombstone.tag).in_(tags)
        )
        if session.exec(held).first() is not None or session.exec(erased).first() is not None:
            raise ConflictError("a record id is in the training set or was erased from it")


def find(session: Session, ref: str) -> Model:
    """Return a model by its reference.

    Raises:
        UnknownModelError: There is none.
    """
    model = session.exec(select(Model).where(Model.ref == ref)).first()
    if model is None:
        raise UnknownModelError("no model has this reference: GET /v1/models lists them")
    return model


def page(session: Session, after: str | None, limit: int) -> Page[ModelView]:
    """Return models in the order of their references."""
    query = select(Model).order_by(Model.ref).limit(limit + 1)
    if after is not None:
        query = query.where(col(Model.ref) > after)
    rows = list(session.exec(query))
    more = rows[limit - 1].ref if len(rows) > limit else None
    return Page(items=[show(row) for row in rows[:limit]], next=more)


def versions(session: Session, ref: str, after: int | None, limit: int) -> Page[VersionView]:
    """Return a model's versions, oldest first."""
    model = find(session, ref)
    query = (
        select(ModelVersion)
        .where(ModelVersion.model_id == model.id, col(ModelVersion.number) > (after or 0))
        .order_by(col(ModelVersion.number))
        .limit(limit + 1)
    )
    rows = list(session.exec(query))
    more = str(rows[limit - 1].number) if len(rows) > limit else None
    return Page(items=[show_version(ref, row) for row in rows[:limit]], next=more)


def version(session: Session, ref: str, number: int) -> ModelVersion:
    """Return one version's row.

    Raises:
        UnknownModelError: No such model.
        NotFoundError: No such version.
    """
    model = find(session, ref)
    row = session.exec(
        select(ModelVersion).where(
            ModelVersion.model_id == model.id, ModelVersion.number == number
        )
    ).first()
    if row is None:
        raise NotFoundError("the model has no version of this number")
    return row


def contribution(session: Session, ref: str, contribution_id: str) -> ContributionView:
    """Return one contribution's state.

    Raises:
        UnknownModelError: No such model.
        NotFoundError: No such contribution to it.
    """
    model = find(session, ref)
    row = session.get(Contribution, contribution_id)
    if row is None or row.model_id != model.id:
        raise NotFoundError("the model has no contribution of this id")
    return show_contribution(model, row)


def show(model: Model) -> ModelView:
    """Return a model as it goes over the wire."""
    return ModelView.model_validate(model.model_dump(exclude={"id", "tombstone_key"}))


def show_version(ref: str, row: ModelVersion) -> VersionView:
    """Return a version as it goes over the wire."""
    return VersionView(
        number=row.number,
        head=row.head_digest,
        statistics=row.statistics_digest,
        retained_root=row.retained_root.hex(),
        retained_count=row.retained_count,
        log_index=row.log_index,
        created_at=row.created_at,
        withdrawn_at=row.withdrawn_at,
        artifact=f"/v1/models/{ref}/versions/{row.number}/artifact",
    )


def show_contribution(model: Model, row: Contribution) -> ContributionView:
    """Return a contribution as it goes over the wire."""
    return ContributionView(
        id=row.id,
        model=model.ref,
        rows=row.rows,
        state=row.state,
        failure=row.failure,
        log_index=row.log_index,
    )
