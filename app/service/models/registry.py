"""Models: contribute to, list, download."""

import hashlib
import uuid
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from sqlmodel import Session, col, select

from app import logs, traces
from app.keys.issuer import signing_issuer
from app.ledger.journal import record_model_event
from app.ledger.transaction import Transaction
from app.problems import (
    ConflictError,
    IdempotencyMismatchError,
    ModelDeletedError,
    ModelNotReadyError,
    NotFoundError,
    UnknownModelError,
)
from app.reconcile.deleted import GONE, require_present
from app.reconcile.logged_versions import logged_leaf
from app.schemas.base import Page
from app.schemas.models import (
    ContributionView,
    Extractor,
    HeldOutView,
    ManifestView,
    ModelView,
    VersionCertificate,
    VersionView,
)
from app.service.context import Services
from app.service.paging import page_of
from app.service.scope import has_tombstone, is_add_back, may_return
from app.service.signatures import current_key
from app.uploads.checked import CheckedUpload
from app.vault.errors import ShreddedError
from app.vault.model_key import ADD_BACK, open_tombstone_key, record_tag, tags_digest
from app.vault.wipe import DELETED
from lethe.certificates.model_signature import sign_model
from lethe.errors import LetheError
from lethe.signing.errors import KeyNotEntitledError
from lethe.signing.http import SignedBy
from models import (
    Certificate,
    Contribution,
    ErasureRequest,
    Job,
    Model,
    ModelVersion,
    Record,
    RequesterKey,
    Verification,
)
from models.database.session import chunks

# What a sum over one row is: its Gram matrix gives the row back, up to its sign.
SINGLE = (
    "This message is of a single record: its statistics are the record, for whoever reads "
    "them. Send several together, or register the model as masked."
)
# One text for all of it, so that nobody learns whose a record was. Of a tombstone that only the
# erasure journal brought back after a restore nobody knows whose it was: it stays.
KNOWN = (
    "a record id is in the training set or was erased from it. What was erased comes back only "
    "to its client, if that asks for it with add_back=true, and not at all where only the "
    "erasure journal knows of it since the database was restored: use new ids"
)


def contribute(
    services: Services,
    signed: SignedBy,
    ref: str,
    upload: CheckedUpload,
    idempotency_key: str | None,
    *,
    add_back: bool = False,
) -> ContributionView:
    """Queue rows that a client adds to a model. The same Idempotency-Key gets the same answer.

    With `add_back` erased records among them may be learned again. The log has this intent,
    and instead of the records a digest of their tags.

    Raises:
        KeyNotEntitledError: The key is no client's, or another client's or subject's.
        IdempotencyMismatchError: The Idempotency-Key came with other rows before.
        UnknownModelError: No such model.
        ModelDeletedError: It was deleted.
        ModelNotReadyError: The model has no version to add to.
        ConflictError: A record id is in the training set, or was erased from it.
    """
    # Permanent refusals are made here, outside the group commit, so that no other call waits.
    with discarding(services, upload), services.reading() as session:
        require_present(services.ledger, ref)
        key = current_key(session, signed, "client")
        _admit(services, session, key, ref, upload, idempotency_key, add_back)

    def effect(tx: Transaction) -> tuple[ContributionView, str | None]:
        key = current_key(tx.session, signed, "client")
        model, earlier = _admit(
            services, tx.session, key, ref, upload, idempotency_key, add_back
        )
        if earlier is not None:
            return show_contribution(model, earlier), None
        digests = {}
        if add_back:
            tombstone_key = open_tombstone_key(services.master, model)
            tags = [record_tag(tombstone_key, record) for record in upload.records]
            digests[ADD_BACK] = tags_digest(tags)
        index = record_model_event(tx, ref, "contribution.received", digests)
        row, job = queue(services, tx, model, upload, index)
        row.keyid, row.idempotency_key = key.keyid, idempotency_key
        return show_contribution(model, row), job.id

    with discarding(services, upload):
        shown, job_id = services.committer.submit(effect)
    if job_id is not None:
        traces.queued(job_id, "learn")
        services.dispatcher.nudge(job_id)
    else:  # an earlier call has stored the same
        services.artifacts.discard(upload.file)
    return shown


@contextmanager
def discarding(services: Services, upload: CheckedUpload | None) -> Iterator[None]:
    """Remove the file of an upload that the block refuses.

    After any other error its row may have been committed: the sweep removes files without one.
    """
    try:
        yield
    except LetheError as error:
        if upload is not None and error.status < 500:
            services.artifacts.discard(upload.file)
        raise


def _admit(
    services: Services,
    session: Session,
    key: RequesterKey,
    ref: str,
    upload: CheckedUpload,
    idempotency_key: str | None,
    add_back: bool,
) -> tuple[Model, Contribution | None]:
    """Return the model, and the contribution that this one repeats. Raises as `contribute`."""
    model = present(session, ref)
    earlier = _first_answer(session, key.keyid, idempotency_key, upload)
    if earlier is not None and is_add_back(session, earlier) != add_back:
        raise IdempotencyMismatchError(
            "this Idempotency-Key came with another add_back before: use a new key"
        )
    if earlier is not None:
        return model, earlier
    if key.client is not None and set(upload.clients) != {key.client}:
        raise KeyNotEntitledError("this key is bound to one client: send only its rows")
    if key.subject is not None and set(upload.subjects) != {key.subject}:
        raise KeyNotEntitledError(
            "this key is bound to one subject: send only its rows, and name it in subjects"
        )
    if model.state != "ready" and not (model.state == "registered" and _remote(model)):
        raise ModelNotReadyError("the model has no fitted version yet: try again later")
    _refuse_known(services, session, model, upload, add_back)
    return model, None


def _first_answer(
    session: Session, keyid: str, idempotency_key: str | None, upload: CheckedUpload
) -> Contribution | None:
    if idempotency_key is None:
        return None
    earlier = session.exec(
        select(Contribution).where(
            Contribution.keyid == keyid, Contribution.idempotency_key == idempotency_key
        )
    ).first()
    if earlier is not None and earlier.body_digest != upload.file.digest:
        raise IdempotencyMismatchError(
            "this Idempotency-Key came with other rows before: use a new key"
        )
    return earlier


def queue(
    services: Services,
    tx: Transaction,
    model: Model,
    upload: CheckedUpload,
    log_index: int,
) -> tuple[Contribution, Job]:
    """Give an upload its row and queue the job that learns it."""
    assert model.id is not None
    artifact = services.artifacts.put_staged(tx.session, upload.file)
    row = Contribution(
        id=str(uuid.uuid4()),
        model_id=model.id,
        upload_id=artifact.id,
        rows=upload.rows,
        body_digest=upload.file.digest,
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
        call_id=logs.call_id(),
        stage="execute",
        created_at=tx.now,
    )
    tx.session.add(job)
    return row, job


def _refuse_known(
    services: Services, session: Session, model: Model, upload: CheckedUpload, add_back: bool
) -> None:
    key = open_tombstone_key(services.master, model)
    clients = dict(zip(upload.records, upload.clients, strict=True))
    for chunk in chunks(upload.records):
        held = select(Record.id).where(
            Record.model_id == model.id, col(Record.record).in_(chunk)
        )
        if add_back:
            returning = {record: clients[record] for record in chunk}
            erased = not may_return(session, model.id, key, returning)
        else:
            erased = has_tombstone(session, model.id, key, chunk)
        if erased or session.exec(held).first() is not None:
            raise ConflictError(KNOWN)


def find(session: Session, ref: str) -> Model:
    """Return a model by its reference.

    Raises:
        UnknownModelError: There is none.
    """
    model = session.exec(select(Model).where(Model.ref == ref)).first()
    if model is None:
        raise UnknownModelError("no model has this reference: GET /v1/models lists them")
    return model


def present(session: Session, ref: str) -> Model:
    """Return a model that its table does not have as deleted.

    Where it matters what the log has, `app.reconcile.deleted.require_present` asks it.

    Raises:
        UnknownModelError: There is none.
        ModelDeletedError: It was deleted.
    """
    model = find(session, ref)
    if model.state == DELETED:
        raise ModelDeletedError(GONE)
    return model


def page(session: Session, after: str | None, limit: int) -> Page[ModelView]:
    """Return models in the order of their references."""
    return page_of(session, select(Model), Model.ref, after, limit, show)


def versions(
    services: Services, session: Session, ref: str, after: int | None, limit: int
) -> Page[VersionView]:
    """Return a model's versions, oldest first. Raises as `show_version`."""
    model = find(session, ref)
    query = select(ModelVersion).where(ModelVersion.model_id == model.id)

    def shown(row: ModelVersion) -> VersionView:
        return show_version(services, model, row)

    return page_of(session, query, ModelVersion.number, after, limit, shown)


def lineage(
    services: Services, session: Session, ref: str, after: int | None, limit: int
) -> Page[VersionView]:
    """Return versions as `versions`, each with the certificates of what made it."""
    model = find(session, ref)
    query = select(ModelVersion).where(ModelVersion.model_id == model.id)

    def shown(row: ModelVersion) -> VersionView:
        certificates = certificates_of(session, row)
        view = show_version(services, model, row)
        return view.model_copy(update={"certificates": certificates})

    return page_of(session, query, ModelVersion.number, after, limit, shown)


def version_of_digest(
    services: Services, session: Session, ref: str, digest: str
) -> VersionView | None:
    """Return a model's version by the digest of its file. Raises as `show_version`."""
    model = find(session, ref)
    query = select(ModelVersion).where(
        ModelVersion.model_id == model.id, ModelVersion.head_digest == digest
    )
    row = session.exec(query.order_by(col(ModelVersion.number))).first()
    return None if row is None else show_version(services, model, row)


def version(
    services: Services, session: Session, ref: str, number: int | Literal["current"]
) -> ModelVersion:
    """Return the row of a version, by its number or the one that the model is at.

    Raises:
        UnknownModelError: No such model.
        ModelDeletedError: The table or the log has the model as deleted.
        NotFoundError: No such version.
    """
    require_present(services.ledger, ref)
    return _version(session, present(session, ref), number)


def _version(session: Session, model: Model, number: int | Literal["current"]) -> ModelVersion:
    if number == "current" and model.current_version is None:
        raise NotFoundError("the model has no version yet: it is still being fitted, or failed")
    row = session.exec(
        select(ModelVersion).where(
            ModelVersion.model_id == model.id,
            ModelVersion.number == (model.current_version if number == "current" else number),
        )
    ).first()
    if row is None:
        raise NotFoundError("the model has no version of this number")
    return row


def certificates_of(session: Session, row: ModelVersion) -> list[VersionCertificate]:
    """Return the certificates of the erasures that made a version, in the log's order."""
    query = (
        select(ErasureRequest.ref, Certificate)
        .join(Verification, col(Verification.request_id) == col(ErasureRequest.id))
        .join(Certificate, col(Certificate.request_id) == col(ErasureRequest.id))
        .where(Verification.version_id == row.id)
        .order_by(col(Certificate.log_index))
    )
    return [
        VersionCertificate(
            ref=ref,
            statement=hashlib.sha256(b64decode(one.envelope["payload"])).hexdigest(),
            result=one.result,
            log_index=one.log_index,
        )
        for ref, one in session.exec(query)
    ]


def sign_version(services: Services, ref: str, number: int | Literal["current"]) -> bytes:
    """Return the issuer's signature of a version's file (`lethe.certificates.model_signature`).

    What is signed is what the log has: whoever writes the tables gets nothing signed.

    Raises:
        UnknownModelError, ModelDeletedError, NotFoundError: As `version`.
        ShreddedError: The version was withdrawn.
        UnloggedVersionError: The table's row is not the version that the log has.
    """
    with services.reading() as session:
        row = version(services, session, ref, number)
        logged_leaf(services.ledger, find(session, ref), row)
        if row.withdrawn_at is not None:
            raise ShreddedError(
                "this version was withdrawn: the service vouches for it no more"
            )
        name, digest = f"{ref}@{row.number}", row.head_digest
    issuer, keyid, _ = signing_issuer(services.settings, services.ledger)
    return sign_model(name, digest, issuer=issuer, issuer_keyid=keyid)


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


def manifest(services: Services, signed: SignedBy, ref: str) -> ManifestView:
    """Return what a client needs to send rows or statistics.

    Raises:
        KeyNotEntitledError: The key is no client's.
        UnknownModelError: No such model.
    """
    with services.reading() as session:
        current_key(session, signed, "client")
        model = present(session, ref)
        names = ("exponents", "bits", "columns", "features", "categories", "weighted")
        config = {name: model.config[name] for name in names if name in model.config}
        if "penalty" in model.config:
            config["penalty"] = float.fromhex(model.config["penalty"])
        return ManifestView(
            ref=model.ref,
            family=model.config.get("family", "ridge"),
            classes=model.classes,
            data=model.config["data"],
            method=model.method,
            extractor=Extractor.model_validate(model.extractor) if model.extractor else None,
            **config,
        )


def _remote(model: Model) -> bool:
    """Return whether a model's rows stay with its clients."""
    return bool(model.config["data"] != "rows")


def show(model: Model) -> ModelView:
    """Return a model as it goes over the wire."""
    fields = model.model_dump(exclude={"id", "tombstone_key"})
    return ModelView.model_validate({**fields, "extractor": fields["extractor"] or None})


def current_figure(services: Services, session: Session, model: Model) -> HeldOutView | None:
    """Return what the current version does on held-out rows. Raises as `show_version`."""
    if model.current_version is None:
        return None
    return _figure(services, model, _version(session, model, "current"))


def _figure(services: Services, model: Model, row: ModelVersion) -> HeldOutView | None:
    if row.held_out is None:
        return None
    logged_leaf(services.ledger, model, row)
    return HeldOutView.model_validate({**row.held_out, "rows": int(row.held_out["rows"])})


def show_version(services: Services, model: Model, row: ModelVersion) -> VersionView:
    """Return a version as it goes over the wire.

    Raises UnloggedVersionError if the log has another figure of held-out rows, or another row.
    """
    return VersionView(
        number=row.number,
        head=row.head_digest,
        statistics=row.statistics_digest,
        retained_root=row.retained_root.hex(),
        retained_count=row.retained_count,
        held_out=_figure(services, model, row),
        log_index=row.log_index,
        created_at=row.created_at,
        withdrawn_at=row.withdrawn_at,
        artifact=f"/v1/models/{model.ref}/versions/{row.number}/artifact",
    )


def show_contribution(model: Model, row: Contribution) -> ContributionView:
    """Return a contribution as it goes over the wire."""
    return ContributionView(
        id=row.id,
        model=model.ref,
        rows=row.rows,
        state=row.state,
        failure=row.failure,
        saturated=row.saturated,
        log_index=row.log_index,
        warnings=[SINGLE] if row.rows == 1 and _remote(model) else [],
    )
