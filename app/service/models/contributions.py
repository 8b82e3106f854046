"""Contributions to a model: rows that a client adds, and the jobs that learn them."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sqlmodel import Session, col, select

from app import logs, traces
from app.ledger.journal import record_model_event
from app.ledger.transaction import Transaction
from app.problems import (
    ConflictError,
    ContributionLimitError,
    IdempotencyMismatchError,
    ModelNotReadyError,
    NotFoundError,
)
from app.reconcile.deleted import require_present
from app.schemas.models import ContributionView
from app.service.context import Services

# The Gram matrix of a single row reveals the row, up to its sign.
from app.service.models.registry import find, is_remote, present
from app.service.scope import has_tombstone, holds_any, is_add_back, may_return
from app.service.signatures import current_key
from app.uploads.checked import CheckedUpload
from app.vault.master import (
    ADD_BACK,
    UPLOAD,
    open_tombstone_key,
    record_tag,
    tags_digest,
    upload_tag,
)
from lethe.errors import LetheError
from lethe.signing.errors import KeyNotEntitledError
from lethe.signing.http import SignedBy
from models import Contribution, Job, Model, RequesterKey
from models.database.session import chunks

SINGLE = (
    "This message is of a single record: its statistics are the record, for whoever reads "
    "them. Send several together, or register the model as masked."
)
# One text for all cases, so that nobody learns whose a record was. After a restore, a tombstone
# that comes from the erasure journal has no known owner: its record cannot come back.
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

    The log has a keyed digest of the upload. With `add_back`, erased records among the rows may
    be learned again. The log records this intent and a digest of the records' tags.

    Raises:
        KeyNotEntitledError: The key is no client's, or another client's or subject's.
        IdempotencyMismatchError: The Idempotency-Key came with other rows, or to another model,
            before.
        UnknownModelError: No such model.
        ModelDeletedError: It was deleted.
        ModelNotReadyError: The model has no version to add to.
        ConflictError: A record id is in the training set, or was erased from it.
        ContributionLimitError: As many of the key's as may wait in the model's queue.
    """
    # Permanent refusals are raised here, outside the group commit, so that no other call waits.
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
        new = named(services, model, upload)
        digests = {UPLOAD: new.tag}
        if add_back:
            tombstone_key = open_tombstone_key(services.root_secret, model)
            tags = [record_tag(tombstone_key, record) for record in upload.records]
            digests[ADD_BACK] = tags_digest(tags)
        index = record_model_event(tx, ref, "contribution.received", digests)
        row, job = queue(services, tx, model, new, index)
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


class NewContribution(NamedTuple):
    """An upload to store. id: of its contribution. tag: the log's commitment to both."""

    id: str
    tag: str
    upload: CheckedUpload


def named(services: Services, model: Model, upload: CheckedUpload) -> NewContribution:
    """Give an upload the id of its contribution, and the tag for the log."""
    contribution_id = str(uuid.uuid4())
    tag = upload_tag(services.root_secret, model, contribution_id, upload.file.digest)
    return NewContribution(contribution_id, tag, upload)


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
    earlier = _first_answer(session, model, key.keyid, idempotency_key, upload)
    if earlier is not None and is_add_back(session, earlier) != add_back:
        raise IdempotencyMismatchError(
            "this Idempotency-Key was already used with another add_back: use a new key"
        )
    if earlier is not None:
        return model, earlier
    if key.client is not None and set(upload.clients) != {key.client}:
        raise KeyNotEntitledError("this key is bound to one client: send only its rows")
    if key.subject is not None and set(upload.subjects) != {key.subject}:
        raise KeyNotEntitledError(
            "this key is bound to one subject: send only its rows, and name it in subjects"
        )
    if model.state != "ready" and not (model.state == "registered" and is_remote(model)):
        raise ModelNotReadyError(
            "the model is not in service, as it is being fitted, its fit failed, "
            "or it is quarantined: try again later"
        )
    _check_waiting(session, model, key.keyid, services.settings.waiting_contributions_per_key)
    _refuse_known(services, session, model, upload, add_back, key.subject)
    return model, None


def _check_waiting(session: Session, model: Model, keyid: str, most: int) -> None:
    """Check that a key may have one more contribution in a model's queue; most: 0 for no limit.

    Each is an update of its own, and erasures of the model wait for those before them. Raises
    ContributionLimitError.
    """
    if most == 0:
        return
    waiting = (
        select(Job.seq)
        .join(Contribution, col(Contribution.id) == col(Job.contribution_id))
        .where(Job.model_id == model.id, col(Job.done_at).is_(None))
        .where(Contribution.keyid == keyid)
    )
    if len(session.exec(waiting.limit(most)).all()) == most:
        raise ContributionLimitError(most)


def _first_answer(
    session: Session,
    model: Model,
    keyid: str,
    idempotency_key: str | None,
    upload: CheckedUpload,
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
            "this Idempotency-Key was already used with other rows: use a new key"
        )
    if earlier is not None and earlier.model_id != model.id:  # this one lacks the rows
        raise IdempotencyMismatchError(
            "this Idempotency-Key was already used with another model: use a new key"
        )
    return earlier


def queue(
    services: Services, tx: Transaction, model: Model, new: NewContribution, log_index: int
) -> tuple[Contribution, Job]:
    """Give an upload its row and queue the job that learns it.

    log_index: of the entry that commits to it.
    """
    assert model.id is not None
    upload = new.upload
    artifact = services.artifacts.put_staged(tx.session, upload.file)
    row = Contribution(
        id=new.id,
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
    services: Services,
    session: Session,
    model: Model,
    upload: CheckedUpload,
    add_back: bool,
    subject: str | None,
) -> None:
    key = open_tombstone_key(services.root_secret, model)
    clients = dict(zip(upload.records, upload.clients, strict=True))
    for chunk in chunks(upload.records):
        if add_back:
            returning = {record: clients[record] for record in chunk}
            erased = not may_return(session, model.id, key, returning, subject)
        else:
            erased = has_tombstone(session, model.id, key, chunk)
        if erased or holds_any(session, model.id, chunk):
            raise ConflictError(KNOWN)


def contribution(session: Session, ref: str, contribution_id: str) -> ContributionView:
    """Return one contribution's state.

    Raises UnknownModelError: no such model; NotFoundError: no such contribution to it.
    """
    model = find(session, ref)
    row = session.get(Contribution, contribution_id)
    if row is None or row.model_id != model.id:
        raise NotFoundError("the model has no contribution of this id")
    return show_contribution(model, row)


def show_contribution(model: Model, row: Contribution) -> ContributionView:
    """Return a contribution as the API shows it."""
    return ContributionView(
        id=row.id,
        model=model.ref,
        rows=row.rows,
        state=row.state,
        failure=row.failure,
        saturated=row.saturated,
        log_index=row.log_index,
        warnings=[SINGLE] if row.rows == 1 and is_remote(model) else [],
    )
