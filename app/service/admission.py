"""Admitting erasure requests: those that arrive together in one transaction, set by set.

Everything is checked for the whole batch at once: that keys are still good, nonces fresh and
models ready, and that what the scopes name is there and unclaimed. So a batch costs a handful
of statements and a request hardly any. What was seen before the transaction only refuses.
"""

import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy import bindparam, func, insert, update
from sqlalchemy import select as columns
from sqlmodel import Session, col, select

from app import logs
from app.ledger.journal import append_request_event
from app.ledger.key_rows import believed
from app.ledger.sequencer import Transaction
from app.problems import (
    IdempotencyMismatchError,
    MethodUnavailableError,
    ModelNotReadyError,
    UnknownModelError,
)
from app.schemas.base import format_time
from app.schemas.requests import NewRequest, Scope
from app.service.context import Services
from app.service.deadlines import due_at
from app.service.methods import SKETCHED, offered
from app.service.queue import PARKED, head_of_queue
from app.service.scope import changed, claim, is_bound, narrow
from app.service.signatures import check_role, insert_nonces, replayed, unknown_key
from lethe.errors import LetheError
from lethe.signing.http import SignedBy
from models import (
    ErasureRequest,
    Job,
    Model,
    Record,
    RequesterKey,
    RequestEvent,
    Subject,
)
from models.session import chunks

MISMATCH = "this Idempotency-Key came with another body before: use a new key"
FEW = 50  # records; a scope that names more is claimed by statements of its own


@dataclass(frozen=True, slots=True)
class Submission:
    """A request whose signature verified. digest: hex SHA-256 of its body.

    key_mac: of the key's row that the signature was verified by. spent: its nonce is, because
    it was in a transaction before. call_id: of the call that it came with, for log lines.
    """

    signed: SignedBy
    key_mac: str
    wanted: NewRequest
    digest: str
    idempotency_key: str | None
    spent: bool = False
    call_id: str | None = field(default_factory=logs.call_id)

    def again(self) -> "Submission":
        """Return what is submitted once more, after others were quicker."""
        return replace(self, spent=True)


@dataclass(frozen=True, slots=True)
class New:
    """What a new request is answered with. records: how many it claimed.

    nudge: the job that a worker should look at, None where one will come to it by itself.
    """

    ref: str
    log_index: int
    due_at: datetime
    scope: Scope
    records: int
    nudge: str | None


@dataclass(frozen=True, slots=True)
class Entered:
    """The request that a submission became; new is None where it repeats an earlier one."""

    request_id: str
    new: New | None = None


def admit(
    services: Services, tx: Transaction, submissions: Sequence[Submission]
) -> list[Entered | Exception]:
    """Store the requests that can be accepted; return what became of each, in order.

    Errors are those of `app.problems` and `lethe.signing.errors`. ScopeChangedError
    says that not all a scope names can be claimed, for whichever reason.
    """
    batch = _Batch(services, tx, submissions)
    outcomes: list[Entered | Exception] = []
    for submission in submissions:
        try:
            outcomes.append(batch.admit(submission))
        except LetheError as error:
            outcomes.append(error)
    batch.write()
    return outcomes


def choose(model: Model | None, wanted: NewRequest) -> str:
    """Return the method that a model is unlearned with for a request.

    Raises:
        UnknownModelError: There is no such model.
        MethodUnavailableError: The model does not offer the method.
        ModelNotReadyError: It has no fitted version.
    """
    if model is None:
        raise UnknownModelError("no model has this reference: GET /v1/models lists them")
    method = wanted.method or model.method
    if method not in (choice := offered(model.config)):
        raise MethodUnavailableError(f"this model offers: {', '.join(choice)}")
    sketches = model.config["data"] == "statistics" and SKETCHED in (model.method, method)
    if sketches and model.method != method:
        # Its clients may send sketches, from which no exact method can go on.
        raise MethodUnavailableError(f"this model offers: {model.method}")
    if model.state != "ready":
        raise ModelNotReadyError("the model has no fitted version yet: try again later")
    return method


@dataclass(slots=True)
class _Row:
    """A record as the batch sees it. claimed: by an open request, or by one of the batch."""

    id: int
    subject_id: int
    claimed: bool


class _Batch:
    """One batch: what it needs of the database, read at once, and what it writes."""

    def __init__(
        self, services: Services, tx: Transaction, submissions: Sequence[Submission]
    ) -> None:
        self._services, self._tx, self._session = services, tx, tx.session
        self._tag = services.master.tag
        self._keys = _read_keys(self._session, {s.signed.keyid for s in submissions})
        unspent = [s.signed for s in submissions if not s.spent]
        self._fresh = insert_nonces(self._session.connection(), unspent)
        self._earlier = self._read_earlier(submissions)
        refs = {s.wanted.model for s in submissions}
        self._models = {
            model.ref: model
            for chunk in chunks(sorted(refs))
            for model in self._session.exec(select(Model).where(col(Model.ref).in_(chunk)))
        }
        self._submissions = submissions
        self._read_records()
        self._heads = self._read_heads()
        self._requests: list[ErasureRequest] = []
        self._events: list[RequestEvent] = []
        self._claims: list[dict[str, object]] = []
        self._jobs: list[Job] = []
        self._nudged: set[int] = set()  # models

    def admit(self, submission: Submission) -> Entered:
        """Check one submission against all before it, and note what is to be written."""
        signed, wanted = submission.signed, submission.wanted
        if not submission.spent:
            pair = (signed.keyid, signed.nonce)
            if pair not in self._fresh:
                raise replayed()
            self._fresh.discard(pair)  # twice in one batch is once too often
        key = self._keys.get(signed.keyid)
        if key is None or key.revoked_at is not None or key.mac != submission.key_mac:
            raise unknown_key()
        check_role(key.role, "requester")
        if (earlier := self._repeated(submission)) is not None:
            return earlier
        model = self._models.get(wanted.model)
        method = choose(model, wanted)
        assert model is not None
        scope = narrow(wanted.scope, key)
        request = self._request(submission, model, method, scope)
        if scope.records is not None and len(scope.records) <= FEW:
            claimed = self._claim(model, key, scope.records, request.id)
            self._requests.append(request)
        else:
            claimed = self._claim_many(model, key, scope, request)
        received = {
            "model": model.ref,
            "method": method,
            "scope": request.scope,
            "records": claimed,
            "keyid": key.keyid,
            "regulation": wanted.regulation,
            "due_at": format_time(request.due_at),
            "body": submission.digest,
        }
        event = append_request_event(self._tx, request, "request.received", received)
        assert event.log_index == request.log_index
        self._events.append(event)
        nudge = self._queue(request, submission.call_id)
        self._note_repeatable(submission, request.id)
        answered = request.ref, request.log_index, request.due_at
        return Entered(request.id, New(*answered, scope, claimed, nudge))

    def write(self) -> None:
        """Write what was noted since the last time."""
        connection = self._session.connection()
        if self._requests:
            connection.execute(insert(ErasureRequest), [r.model_dump() for r in self._requests])
        if self._claims:
            done = connection.execute(_CLAIM, self._claims)
            assert done.rowcount in (len(self._claims), -1), "claimed outside the log's lock"
        if self._events:
            connection.execute(insert(RequestEvent), [e.model_dump() for e in self._events])
        if self._jobs:
            rows = [job.model_dump(exclude={"seq"}) for job in self._jobs]
            connection.execute(insert(Job), rows)
        for noted in (self._requests, self._claims, self._events, self._jobs):
            noted.clear()

    def _request(
        self, submission: Submission, model: Model, method: str, scope: Scope
    ) -> ErasureRequest:
        assert model.id is not None
        return ErasureRequest(
            id=str(uuid.uuid4()),
            ref=str(uuid.uuid4()),
            model_id=model.id,
            keyid=submission.signed.keyid,
            method=method,
            scope=scope.model_dump(exclude_none=True),
            regulation=submission.wanted.regulation,
            event_key=secrets.token_bytes(32),
            log_index=self._tx.next_index,
            idempotency_key=submission.idempotency_key,
            body_digest=submission.digest,
            received_at=self._tx.now,
            due_at=due_at(self._tx.now, submission.wanted.regulation),
        )

    def _claim(
        self, model: Model, key: RequesterKey, names: Sequence[str], request_id: str
    ) -> int:
        """Note the claims of a scope that names few records; return how many it names."""
        rows = [self._records.get((model.id, name)) for name in names]
        free = [row for row in rows if row is not None and not row.claimed]
        if len(free) < len(names) or not all(self._is_entitled(key, row) for row in free):
            raise changed()
        for row in free:
            row.claimed = True
            self._claims.append({"row": row.id, "by": request_id})
        return len(names)

    def _claim_many(
        self, model: Model, key: RequesterKey, scope: Scope, request: ErasureRequest
    ) -> int:
        """Claim what a client or subject has, or many named records; return how many."""
        self.write()  # what was claimed before it in the batch is claimed
        with self._tx.savepoint():
            self._session.connection().execute(insert(ErasureRequest), [request.model_dump()])
            claimed = claim(self._session, model, key, scope, request.id)
        self._read_records()
        return claimed

    def _is_entitled(self, key: RequesterKey, row: _Row) -> bool:
        if not is_bound(key):
            return True
        client, subject = self._owners[row.subject_id]
        return (key.client is None or self._tag("client", key.client) == client) and (
            key.subject is None or self._tag("subject", key.subject) == subject
        )

    def _queue(self, request: ErasureRequest, call_id: str | None) -> str | None:
        """Note the job of a request; return which job to nudge for it, if any.

        One for each model that nobody works for: who finishes a job looks for the next. Where
        requests wait for one another, the head of the queue may have waited for this one.
        """
        job = Job(
            id=str(uuid.uuid4()),
            model_id=request.model_id,
            kind="erase",
            request_id=request.id,
            call_id=call_id,
            stage="execute",
            created_at=self._tx.now,
        )
        self._jobs.append(job)
        if request.model_id in self._nudged:
            return None
        self._nudged.add(request.model_id)
        head = self._heads.get(request.model_id)
        if head is None:
            return job.id
        return head if self._services.settings.batch_min_requests > 1 else None

    def _repeated(self, submission: Submission) -> Entered | None:
        """Return the request that a submission repeats, by its Idempotency-Key."""
        found = self._earlier.get(self._repeatable(submission))
        if submission.idempotency_key is None or found is None:
            return None
        if found[1] != submission.digest:
            raise IdempotencyMismatchError(MISMATCH)
        return Entered(found[0])

    def _note_repeatable(self, submission: Submission, request_id: str) -> None:
        if submission.idempotency_key is not None:
            self._earlier[self._repeatable(submission)] = request_id, submission.digest

    def _repeatable(self, submission: Submission) -> tuple[str, str]:
        sent = submission.idempotency_key
        return submission.signed.keyid, self._tag("idempotency-key", sent) if sent else ""

    def _read_earlier(
        self, submissions: Sequence[Submission]
    ) -> dict[tuple[str, str], tuple[str, str]]:
        """Return (request's id, digest of its body) by (keyid, tag of its Idempotency-Key)."""
        sent = {s.idempotency_key for s in submissions if s.idempotency_key is not None}
        found = {}
        for chunk in chunks(sorted(sent)):
            query = columns(
                col(ErasureRequest.keyid),
                col(ErasureRequest.idempotency_key),
                col(ErasureRequest.id),
                col(ErasureRequest.body_digest),
            ).where(col(ErasureRequest.idempotency_key).in_(chunk))
            for keyid, tag, request_id, digest in self._session.connection().execute(query):
                found[keyid, str(tag)] = request_id, digest
        return found

    def _read_records(self) -> None:
        """Read the records that scopes of few records name, and whose they are."""
        self._records: dict[tuple[int | None, str], _Row] = {}
        self._owners: dict[int, tuple[str, str]] = {}
        named: dict[int, set[str]] = {}
        for submission in self._submissions:
            model = self._models.get(submission.wanted.model)
            wanted = submission.wanted.scope.records or []
            if model is not None and model.id is not None and 0 < len(wanted) <= FEW:
                named.setdefault(model.id, set()).update(wanted)
        connection = self._session.connection()
        for model_id, names in named.items():
            for chunk in chunks(sorted(names)):
                query = columns(
                    col(Record.record),
                    col(Record.id),
                    col(Record.subject_id),
                    col(Record.claimed_by).is_not(None),
                ).where(col(Record.model_id) == model_id, col(Record.record).in_(chunk))
                for record, row_id, subject_id, claimed in connection.execute(query):
                    assert row_id is not None
                    self._records[model_id, record] = _Row(row_id, subject_id, bool(claimed))
        if any(key is not None and is_bound(key) for key in self._keys.values()):
            owners = {row.subject_id for row in self._records.values()}
            for part in chunks(sorted(owners)):
                tags = columns(
                    col(Subject.id), col(Subject.client_tag), col(Subject.subject_tag)
                ).where(col(Subject.id).in_(part))
                for owner, client, subject in connection.execute(tags):
                    assert owner is not None
                    self._owners[owner] = str(client), str(subject)

    def _read_heads(self) -> dict[int, str]:
        """Return the job that somebody works at or will be sent to, of each model that has one.

        Which of them is the head of its queue counts only where requests wait for one another.
        """
        ids = sorted(model.id for model in self._models.values() if model.id is not None)
        if self._services.settings.batch_min_requests > 1:
            heads = {model_id: head_of_queue(self._session, model_id) for model_id in ids}
            return {model_id: head.id for model_id, head in heads.items() if head is not None}
        found: dict[int, str] = {}
        for chunk in chunks(ids):
            query = (
                columns(col(Job.model_id), func.min(Job.id))
                .where(
                    col(Job.model_id).in_(chunk),
                    col(Job.done_at).is_(None),
                    col(Job.stage) != PARKED,
                )
                .group_by(col(Job.model_id))
            )
            for model_id, job_id in self._session.connection().execute(query):
                found[model_id] = job_id
        return found


def _read_keys(session: Session, keyids: set[str]) -> dict[str, RequesterKey | None]:
    """Return the keys that this installation wrote, by their ids."""
    held: list[RequesterKey] = []  # or the session would forget what it has read
    for chunk in chunks(sorted(keyids)):
        try:
            held += session.exec(select(RequesterKey).where(col(RequesterKey.keyid).in_(chunk)))
        except (LetheError, ValueError):  # one of them cannot be read: each by itself
            break
    return {keyid: believed(session, RequesterKey, keyid) for keyid in sorted(keyids)}


_CLAIM = (
    update(Record)
    .where(col(Record.id) == bindparam("row"), col(Record.claimed_by).is_(None))
    .values(claimed_by=bindparam("by"))
)
