"""Releases: statistics that a client must send before some of its records can be erased.

If rows stay with a client, only the client knows the statistics of some of them. Each poll of
the client returns the open releases, until it answers or an operator decides to remove its
whole block.
"""

import hmac
from collections.abc import Sequence
from hashlib import sha256

from sqlalchemy import update
from sqlmodel import Session, col, select

from app.ledger.journal import record_request_event
from app.ledger.sequencer import Ledger
from app.ledger.transaction import Transaction
from app.problems import NotFoundError, ReleaseClosedError, ReleaseMismatchError
from app.reconcile.judgement import ESCALATED, opened
from app.reconcile.model_events import request_events
from app.schemas.base import Page
from app.schemas.requests import ReleaseSummary, ReleaseView
from app.service.context import Services
from app.service.models.contributions import SINGLE, discarding
from app.service.paging import page_of
from app.service.queue import PARKED
from app.service.signatures import current_key
from app.uploads.checked import CheckedUpload
from app.vault.master import RootSecret, upload_tag
from lethe.log.entries import CommitmentError, EntryError
from lethe.signing.errors import KeyNotEntitledError
from lethe.signing.http import SignedBy
from models import (
    ErasureRequest,
    FeatureBlock,
    Job,
    Model,
    Record,
    Release,
    RequesterKey,
    Subject,
)
from models.database.session import rows_in

PAGE = 100
DROP = "drop-block"  # an operator's decision, in the log


def open_releases(services: Services, signed: SignedBy) -> list[ReleaseView]:
    """Return the open releases of a client, oldest first, and count the poll.

    Clients poll often, mostly with nothing open: such a poll does not take the log's turn.

    Raises KeyNotEntitledError if the key is not bound to a client.
    """

    def effect(tx: Transaction) -> list[ReleaseView]:
        shown = []
        for release, owner in _open_for(tx.session, signed):
            release.asked += 1
            release.asked_at = tx.now
            shown.append(_view(tx.session, release, owner))
        return shown

    with services.reading() as session:
        if not _open_for(session, signed):
            return []
    return services.ledger.transact(effect, checkpoint=False)


def _open_for(session: Session, signed: SignedBy) -> Sequence[tuple[Release, Subject]]:
    key = current_key(session, signed, "client")
    query = (
        select(Release, Subject)
        .join(Subject, col(Subject.id) == col(Release.subject_id))
        .where(Release.state == "open", Subject.client_tag == _client_of(key))
        .order_by(col(Release.created_at), col(Release.id))
        .limit(PAGE)
    )
    if key.subject is not None:
        query = query.where(Subject.subject_tag == key.subject)
    return session.exec(query).all()


def model_of(services: Services, signed: SignedBy, release_id: str) -> Model:
    """Return the model of a release of the signing client.

    Raises NotFoundError: no such release, or another client's; KeyNotEntitledError: the key is
    not bound to a client.
    """
    with services.reading() as session:
        release = _find(session, release_id)
        _owner_for(session, release, current_key(session, signed, "client"))
        return session.get_one(Model, release.model_id)


def answer(
    services: Services, signed: SignedBy, release_id: str, upload: CheckedUpload
) -> ReleaseView:
    """Store a client's statistics of the requested records, and resume the request.

    Repeating the same answer is accepted; another answer cannot replace it.

    Raises:
        NotFoundError: No such release, or another client's.
        ReleaseClosedError: It has another answer, or no longer needs one.
        ReleaseMismatchError: The statistics are of other records.
    """

    def effect(tx: Transaction) -> tuple[ReleaseView, tuple[str, str] | None, bool]:
        session = tx.session
        key = current_key(tx.session, signed, "client")
        release = _find(session, release_id)
        owner = _owner_for(session, release, key)
        model = session.get_one(Model, release.model_id)
        digest = upload_tag(services.root_secret, model, release.id, upload.file.digest)
        if release.state in ("answered", "done") and release.body_digest == digest:
            return _view(session, release, owner), None, False
        if release.state != "open":
            raise ReleaseClosedError("this release no longer needs an answer")
        wanted = _records(session, release)
        same_owner = upload.clients[0] == owner.client and upload.subjects[0] == owner.subject
        if not same_owner or sorted(upload.records) != wanted:
            raise ReleaseMismatchError(
                "send the statistics of exactly the records, client and subject of the release"
            )
        release.upload_id = services.artifacts.put_staged(session, upload.file).id
        release.body_digest = digest
        release.state = "answered"
        session.flush()
        return _view(session, release, owner), resume(tx, release), True

    with discarding(services, upload):
        shown, job, stored = services.ledger.transact(effect, checkpoint=False)
    if not stored:
        services.artifacts.discard(upload.file)
    if job is not None:
        services.dispatcher.nudge(*job)
    return shown


def drop(services: Services, release_id: str, operator: str) -> ReleaseSummary:
    """Decide, as the named operator, to remove a silent client's whole block.

    This erases the requested records and all others of the block. Requests for other records
    of the block are executed with it. The log records the decision and commits to the operator.

    Raises NotFoundError: no such release; ReleaseClosedError: it was answered or decided.
    """

    def effect(tx: Transaction) -> tuple[ReleaseSummary, list[tuple[str, str]]]:
        session = tx.session
        release = _find(session, release_id)
        if release.state != "open":
            raise ReleaseClosedError("this release was already answered or decided")
        of_block = select(Release).where(
            Release.subject_id == release.subject_id, Release.state == "open"
        )
        going = []
        for one in session.exec(of_block).all():
            one.state = "dropped"
            record_request_event(
                tx,
                session.get_one(ErasureRequest, one.request_id),
                "request.escalated",
                {"decision": DROP, "operator": operator, "block": str(one.subject_id)},
            )
            session.flush()
            if (job := resume(tx, one)) is not None:
                going.append(job)
        return _summary(session, release), going

    shown, going = services.ledger.transact(effect)
    for job in going:
        services.dispatcher.nudge(*job)
    return shown


def is_answer(root_secret: RootSecret, model: Model, release: Release, data: bytes) -> bool:
    """Return whether a stored file is what was sent as the answer to a release of a model.

    Whoever writes the table can exchange the answers to two releases.
    """
    tag = upload_tag(root_secret, model, release.id, sha256(data).hexdigest())
    return hmac.compare_digest(tag.encode(), (release.body_digest or "").encode())


def is_decided(ledger: Ledger, session: Session, release: Release) -> bool:
    """Return whether the log has that an operator removes a release's block for its request.

    Raises as `request_events`.
    """
    request = session.get_one(ErasureRequest, release.request_id)
    try:
        events = opened(session, request, request_events(ledger, request.ref))
    except (CommitmentError, EntryError):
        return False
    decided = DROP, str(release.subject_id)
    return any(
        (one.payload.get("decision"), one.payload.get("block")) == decided
        for one in events
        if one.event == ESCALATED
    )


def close_releases(services: Services, tx: Transaction, *requests: str) -> None:
    """Close the releases of requests that no longer need answers, and shred the answers."""
    open_ones = select(Release).where(col(Release.state) != "done")
    for release in rows_in(tx.session, open_ones, col(Release.request_id), requests):
        shred_answer(services, tx.session, release)
        release.state = "done"
    tx.session.flush()


def shred_answer(services: Services, session: Session, release: Release) -> None:
    """Destroy the key of a client's answer; its digest still identifies a repeated one."""
    if release.upload_id is not None:
        services.artifacts.shred(session, release.upload_id, "release")
        release.upload_id = None


def page(session: Session, after: str | None, limit: int) -> Page[ReleaseSummary]:
    """Return the releases that are not done, by id."""
    query = select(Release).where(Release.state != "done")
    return page_of(session, query, Release.id, after, limit, lambda row: _summary(session, row))


def resume(tx: Transaction, release: Release) -> tuple[str, str] | None:
    """Resume a request's job if no release of it is open; return its nudge."""
    open_ones = select(Release.id).where(
        Release.request_id == release.request_id, Release.state == "open"
    )
    if tx.session.exec(open_ones).first() is not None:
        return None
    job = tx.session.exec(select(Job).where(Job.request_id == release.request_id)).one()
    tx.session.connection().execute(
        update(Job)
        .where(col(Job.id) == job.id, col(Job.stage) == PARKED)
        .values(stage="execute")
    )
    request = tx.session.get_one(ErasureRequest, release.request_id)
    request.state = "executing"
    tx.session.flush()
    tx.session.expire(job)
    return job.id, "execute"


def _client_of(key: RequesterKey) -> str:
    if key.client is None:
        raise KeyNotEntitledError("releases are for keys that are bound to one client")
    return key.client


def _find(session: Session, release_id: str) -> Release:
    release = session.get(Release, release_id)
    if release is None:
        raise _no_release()
    return release


def _owner_for(session: Session, release: Release, key: RequesterKey) -> Subject:
    """Return the owner of a release's block, if it is this key's client."""
    owner = session.get_one(Subject, release.subject_id)
    if owner.client != _client_of(key) or key.subject not in (None, owner.subject):
        raise _no_release()
    return owner


def _no_release() -> NotFoundError:
    return NotFoundError("no open release of yours has this id: GET /v1/releases")


def _records(session: Session, release: Release) -> list[str]:
    query = select(Record.record).where(
        Record.claimed_by == release.request_id, Record.subject_id == release.subject_id
    )
    return sorted(session.exec(query))


def _view(session: Session, release: Release, owner: Subject) -> ReleaseView:
    return ReleaseView(
        id=release.id,
        request=session.get_one(ErasureRequest, release.request_id).ref,
        model=session.get_one(Model, release.model_id).ref,
        client=owner.client or "",
        subject=owner.subject or "",
        records=(records := _records(session, release)),
        state=release.state,
        asked=release.asked,
        escalates_at=release.escalates_at,
        warnings=[SINGLE] if len(records) == 1 else [],
    )


def _summary(session: Session, release: Release) -> ReleaseSummary:
    block = session.get(FeatureBlock, release.subject_id)
    return ReleaseSummary(
        id=release.id,
        request=session.get_one(ErasureRequest, release.request_id).ref,
        model=session.get_one(Model, release.model_id).ref,
        records=len(_records(session, release)),
        block_records=0 if block is None else block.rows,
        state=release.state,
        asked=release.asked,
        asked_at=release.asked_at,
        escalates_at=release.escalates_at,
    )
