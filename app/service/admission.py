"""Admitting erasure requests: those that arrive together share one transaction.

Keys, nonces, models, and that the records in scope exist and are unclaimed are checked for the
whole batch at once, so a batch costs a handful of statements and a request hardly any. Checks
before the transaction can only refuse a request.
"""

import json
import secrets
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from sqlmodel import SQLModel

from app import logs
from app.ledger import callback_rows
from app.ledger.journal import append_request_event
from app.ledger.key_rows import key_rows
from app.ledger.transaction import Transaction
from app.problems import (
    IdempotencyMismatchError,
    MethodUnavailableError,
    ModelDeletedError,
    ModelNotReadyError,
    UnknownModelError,
)
from app.reconcile.deleted import GONE
from app.schemas.base import format_time
from app.schemas.requests import NewRequest, Scope
from app.service.access import quota
from app.service.access.quota import check_limit
from app.service.context import Services
from app.service.deadlines import due_at, zone_of
from app.service.methods import offered
from app.service.queue import PARKED, head_of_queue
from app.service.review import Start, start
from app.service.scope import changed, claim, narrow
from app.service.signatures import (
    KnownKey,
    check_role,
    insertion_of_nonces,
    replayed,
    selection_of_keys,
    unknown_key,
)
from app.vault.request_ref import request_ref
from app.vault.wipe import DELETED
from lethe.catalogue import SKETCHED, data_of
from lethe.errors import LetheError
from lethe.signing.http import SignedBy
from models import Callback, ErasureRequest, Job, Model, Record, RequestEvent
from models.database import bulk
from models.database.types import SealedName, SealedText

RECEIVED = "request.received"
MISMATCH = "this Idempotency-Key was already used with another body: use a new key"
FEW = 50  # records; a scope that names more is claimed by statements of its own


@dataclass(frozen=True, slots=True)
class Submission:
    """A request whose signature verified. digest: hex SHA-256 of its body.

    key: the key that verified the signature. spent: whether an earlier transaction spent its
    nonce. call_id: of its call, for log lines.
    """

    signed: SignedBy
    key: KnownKey
    wanted: NewRequest
    digest: str
    idempotency_key: str | None
    spent: bool = False
    call_id: str | None = field(default_factory=logs.call_id)

    def again(self) -> "Submission":
        """Return the submission for another try, after others were faster."""
        return replace(self, spent=True)


@dataclass(frozen=True, slots=True)
class New:
    """The answer to a new request. records: how many it claimed.

    nudge: the job that a worker should look at, None if a worker will find it by itself.
    """

    ref: str
    state: str
    log_index: int
    due_at: datetime
    scope: Scope
    method: str
    records: int
    job_id: str
    nudge: str | None


@dataclass(frozen=True, slots=True)
class Entered:
    """The request that a submission became; new is None where it repeats an earlier one."""

    request_id: str
    new: New | None = None


def opening(services: Services, submissions: Sequence[Submission]) -> list[bulk.Statement]:
    """Return the statements that read all data a batch needs, and spend its nonces.

    Nonces first: the statement on which other transactions may wait comes before the reads.
    """
    dialect = services.engine.dialect
    keyids = sorted({one.signed.keyid for one in submissions})
    refs = sorted({one.wanted.model for one in submissions})
    reads = [
        selection_of_keys(dialect, keyids),
        bulk.over(dialect, _READ_MODELS, _REF, [(ref,) for ref in refs]),
    ]
    if unspent := [one.signed for one in submissions if not one.spent]:
        reads.insert(0, insertion_of_nonces(dialect, unspent))
    keyed = [one for one in submissions if one.idempotency_key is not None]
    if sent := sorted({(one.signed.keyid, one.idempotency_key) for one in keyed}):
        reads.append(bulk.over(dialect, _READ_EARLIER, _SENT, sent))
    if named := _few_named(submissions):
        reads.append(bulk.over(dialect, _READ_RECORDS, _NAMED, named))
    if most := services.settings.open_requests_per_key:
        reads.append(quota.counting(dialect, keyids, most))
    return reads


def _few_named(submissions: Sequence[Submission]) -> list[tuple[str, str]]:
    """Return the (model, record) pairs of scopes that name at most FEW records."""
    scopes = ((one.wanted.model, one.wanted.scope.records or []) for one in submissions)
    return sorted({(model, name) for model, few in scopes if len(few) <= FEW for name in few})


def admit(
    services: Services, tx: Transaction, submissions: Sequence[Submission], answers: bulk.Rows
) -> list[Entered | Exception]:
    """Store the requests that can be accepted; return the outcome of each, in order.

    answers: the rows of `opening`, read under the lock.

    Errors are those of `app.problems` and `lethe.signing.errors`. ScopeChangedError means that
    not all records of a scope can be claimed, whatever the reason.
    """
    batch = _Batch(services, tx, submissions, answers)
    outcomes: list[Entered | Exception] = []
    for submission in submissions:
        try:
            outcomes.append(batch.admit(submission))
        except LetheError as error:
            outcomes.append(error)
    batch.write()
    return outcomes


class Offer(Protocol):
    """The properties of a model that decide whether and how a request is accepted."""

    @property
    def method(self) -> str:
        """The method of requests that name none."""

    @property
    def config(self) -> dict[str, Any]:
        """Its registered configuration."""

    @property
    def state(self) -> str:
        """Its state, such as `ready`."""


def choose(model: Offer | None, wanted: NewRequest) -> str:
    """Return the unlearning method for a request.

    Raises:
        UnknownModelError: There is no such model.
        MethodUnavailableError: The model does not offer the method.
        ModelDeletedError: It was deleted.
        ModelNotReadyError: It has no fitted version.
    """
    if model is None:
        raise UnknownModelError("no model has this reference: GET /v1/models lists them")
    method = wanted.method or model.method
    if method not in (choice := offered(model.config)):
        raise MethodUnavailableError(
            f"the model does not offer this method: choose among {', '.join(choice)}"
        )
    sketches = data_of(model.config).messages_here and SKETCHED & {model.method, method}
    if sketches and model.method != method:
        # Its clients may send sketches, which no exact method can use.
        raise MethodUnavailableError(f"the model offers no other method than {model.method}")
    if model.state == DELETED:
        raise ModelDeletedError(GONE)
    if model.state != "ready":
        raise ModelNotReadyError(
            "the model is not in service, as it is being fitted, its fit failed, "
            "or it is quarantined: try again later"
        )
    return method


class _Model(NamedTuple):
    """A model's columns for a batch. head: an unfinished job of it, None if there is none."""

    id: int
    ref: str
    method: str
    config: dict[str, Any]
    state: str
    decide: str
    cooling_off: int
    head: str | None


@dataclass(slots=True)
class _Row:
    """A record's columns for a batch. claimed: by an open request, or by one of the batch.

    client, subject: the tags of its owner.
    """

    id: int
    claimed: bool
    client: str
    subject: str


class _Batch:
    """One batch: the rows it needs, read at once, and the rows it writes."""

    def __init__(
        self,
        services: Services,
        tx: Transaction,
        submissions: Sequence[Submission],
        answers: bulk.Rows,
    ) -> None:
        self._services, self._tx, self._session = services, tx, tx.session
        self._connection = tx.session.connection()
        self._dialect = self._connection.dialect
        self._tag = services.root_secret.tag
        self._submissions = submissions
        self._most_open = services.settings.open_requests_per_key
        self._note(answers)
        self._requests: list[dict[str, Any]] = []
        self._events: list[dict[str, Any]] = []
        self._claims: list[tuple[int, str]] = []
        self._jobs: list[dict[str, Any]] = []
        self._callbacks: list[dict[str, Any]] = []
        self._nudged: set[int] = set()  # models

    def admit(self, submission: Submission) -> Entered:
        """Check one submission against all before it, and queue its rows for `write`."""
        signed, wanted = submission.signed, submission.wanted
        if not submission.spent:
            pair = (signed.keyid, signed.nonce)
            if pair not in self._fresh:
                raise replayed()
            self._fresh.discard(pair)  # twice in one batch is once too often
        key = self._current(signed.keyid, submission.key)
        check_role(key.role, "requester")
        if (earlier := self._repeated(submission)) is not None:
            return earlier
        quota.check(self._most_open, self._open[signed.keyid])
        model = self._models.get(wanted.model)
        method = choose(model, wanted)
        assert model is not None
        scope = narrow(wanted.scope, key)
        binding = "subject" if key.subject else "client" if key.client else None
        # The log is checked again before the execution: the row only says where to begin.
        begins = start(model, binding if key.confirmed else None, self._tx.now)
        request = self._request(submission, model, method, scope, begins)
        callback = self._callback(submission, request["ref"])
        if scope.records is not None and len(scope.records) <= FEW:
            claimed = self._claim(model, key, scope.records, request["id"])
            self._requests.append(request)
        else:
            claimed = self._claim_many(model, key, scope, request)
        received = {
            "model": model.ref,
            "method": method,
            "scope": request["scope"],
            "records": claimed,
            "keyid": signed.keyid,
            "registration": key.ref,
            "binding": binding,
            "regulation": wanted.regulation,
            "due_at": format_time(request["due_at"]),
            "body": submission.digest,
        }
        index = append_request_event(
            self._tx, request["ref"], request["event_key"], RECEIVED, received
        )
        assert index == request["log_index"]
        self._events.append(
            {
                "log_index": index,
                "request_id": request["id"],
                "event": RECEIVED,
                "at": self._tx.now,
                "payload": received,
            }
        )
        self._callbacks += callback
        job_id, nudge = self._queue(request["id"], model, submission.call_id, begins.stage)
        self._note_repeatable(submission, request["id"])
        self._open[signed.keyid] += 1
        answered = request["ref"], begins.state, index, request["due_at"]
        new = New(*answered, scope, method, claimed, job_id, nudge)
        return Entered(request["id"], new)

    def write(self) -> None:
        """Write the queued rows in the transaction."""
        tables: list[tuple[type[SQLModel], list[dict[str, Any]]]] = [
            (ErasureRequest, self._requests),
            (RequestEvent, self._events),
            (Job, self._jobs),
            (Callback, self._callbacks),
        ]
        self._tx.write(
            *(bulk.insert(self._dialect, table, rows) for table, rows in tables if rows)
        )
        if self._claims:
            claims = bulk.over(self._dialect, _CLAIM, _CLAIMED, self._claims, len(self._claims))
            self._tx.write(claims)
        for noted in (self._requests, self._claims, self._events, self._jobs, self._callbacks):
            noted.clear()

    def _request(
        self, submission: Submission, model: _Model, method: str, scope: Scope, begins: Start
    ) -> dict[str, Any]:
        zone = zone_of(self._services.settings)
        request_id = str(uuid.uuid4())
        return {
            "id": request_id,
            "ref": request_ref(self._services.root_secret, request_id),
            "model_id": model.id,
            "keyid": submission.signed.keyid,
            "state": begins.state,
            "held_until": begins.held_until,
            "method": method,
            "scope": scope.model_dump(exclude_none=True),
            "regulation": submission.wanted.regulation,
            "event_key": secrets.token_bytes(32),
            "log_index": self._tx.next_index,
            "idempotency_key": submission.idempotency_key,
            "body_digest": submission.digest,
            "received_at": self._tx.now,
            "due_at": due_at(self._tx.now, submission.wanted.regulation, zone),
        }

    def _callback(self, submission: Submission, ref: str) -> list[dict[str, Any]]:
        """Return the row of a submission's callback, if it has one.

        Raises CallbackLimitError if the key has reached its limit.
        """
        if (url := submission.wanted.callback) is None:
            return []
        owner, kind = submission.signed.keyid, callback_rows.REQUEST
        new = sum(one["owner"] == owner for one in self._callbacks)
        check_limit(self._services, self._session, kind, owner, new)
        key = self._services.ledger.entry_key
        assert key is not None, "a ledger that only looks accepts nothing"
        return callback_rows.new_rows(key, kind, owner, ref, url, [ref], self._tx.now)

    def _claim(
        self, model: _Model, key: KnownKey, names: Sequence[str], request_id: str
    ) -> int:
        """Queue the claims of a scope that names few records; return their number."""
        rows = [self._records.get((model.id, name)) for name in names]
        free = [row for row in rows if row is not None and not row.claimed]
        if len(free) < len(names) or not all(self._is_entitled(key, row) for row in free):
            raise changed()
        for row in free:
            row.claimed = True
            self._claims.append((row.id, request_id))
        return len(names)

    def _claim_many(
        self, model: _Model, key: KnownKey, scope: Scope, request: dict[str, Any]
    ) -> int:
        """Claim the records of a client or subject, or many named ones; return how many."""
        self.write()  # earlier claims of the batch must be visible
        with self._tx.savepoint():
            bulk.run(self._connection, bulk.insert(self._dialect, ErasureRequest, [request]))
            claimed = claim(self._session, model.id, key, scope, request["id"])
        if named := _few_named(self._submissions):
            selection = bulk.over(self._dialect, _READ_RECORDS, _NAMED, named)
            self._note_records(bulk.run(self._connection, selection)[0])
        return claimed

    def _current(self, keyid: str, key: KnownKey) -> KnownKey:
        """Return the key that verified a signature, as its row is now.

        Raises KeyUnknownError if it was replaced, changed or revoked.
        """
        if self._keys.get(keyid) == key.row and key.tag not in self._revoked:
            return key
        # The row changed, perhaps only by a confirmation: check its MAC, as at first.
        try:
            found = self._services.keys.read(self._session, keyid)
        except LetheError:
            raise unknown_key() from None
        if not found.same_as(key):
            raise unknown_key()
        return found

    def _is_entitled(self, key: KnownKey, row: _Row) -> bool:
        return (key.client is None or self._tag("client", key.client) == row.client) and (
            key.subject is None or self._tag("subject", key.subject) == row.subject
        )

    def _queue(
        self, request_id: str, model: _Model, call_id: str | None, stage: str
    ) -> tuple[str, str | None]:
        """Queue the job of a request; return its id, and which job to nudge for it, if any.

        One nudge for each idle model: a worker that finishes a job looks for the next. Where
        requests are batched, the head of the queue may have waited for this one.
        """
        job_id = str(uuid.uuid4())
        self._jobs.append(
            {
                **_NEW_JOB,
                "id": job_id,
                "model_id": model.id,
                "kind": "erase",
                "request_id": request_id,
                "call_id": call_id,
                "stage": stage,
                "created_at": self._tx.now,
            }
        )
        if stage == PARKED or model.id in self._nudged:
            return job_id, None
        self._nudged.add(model.id)
        if self._services.settings.batch_min_requests == 1:
            return job_id, job_id if model.head is None else None
        # The jobs of this batch are not written yet: the head is an older one, or this one.
        head = head_of_queue(self._session, model.id)
        return job_id, job_id if head is None else head.id

    def _repeated(self, submission: Submission) -> Entered | None:
        """Return the request that a submission repeats, by its Idempotency-Key."""
        if submission.idempotency_key is None:
            return None
        found = self._earlier.get(self._repeatable(submission))
        if found is None:
            return None
        if found[1] != submission.digest:
            raise IdempotencyMismatchError(MISMATCH)
        return Entered(found[0])

    def _note_repeatable(self, submission: Submission, request_id: str) -> None:
        if submission.idempotency_key is not None:
            self._earlier[self._repeatable(submission)] = request_id, submission.digest

    def _repeatable(self, submission: Submission) -> tuple[str, str]:
        assert submission.idempotency_key is not None
        return submission.signed.keyid, self._tag("idempotency-key", submission.idempotency_key)

    def _note(self, answers: bulk.Rows) -> None:
        """Keep the rows that `opening` read."""
        dialect, submissions, rows = self._dialect, self._submissions, iter(answers)
        spends = any(not one.spent for one in submissions)
        self._fresh = {(keyid, nonce) for keyid, nonce in (next(rows) if spends else [])}
        self._keys = {row[0]: row for row in next(rows)}
        self._revoked = key_rows(self._session).revoked()
        self._models = {
            ref: _Model(model_id, ref, method, _json(config), *rest)
            for model_id, ref, method, config, *rest in next(rows)
        }
        keyed = any(one.idempotency_key is not None for one in submissions)
        self._earlier = {
            (keyid, tag): (request_id, _DIGEST.process_result_value(digest, dialect))
            for keyid, tag, request_id, digest in (next(rows) if keyed else [])
        }
        self._note_records(next(rows) if _few_named(submissions) else [])
        held = next(rows) if self._most_open else []
        self._open: Counter[str] = Counter(dict(held))

    def _note_records(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._records = {
            (model_id, _NAME.process_result_value(record, self._dialect)): _Row(
                row_id, bool(claimed), client, subject
            )
            for model_id, record, row_id, claimed, client, subject in rows
        }


def _json(value: Any) -> dict[str, Any]:
    """Return a JSON column's value, which SQLite has as text."""
    found: dict[str, Any] = json.loads(value) if isinstance(value, str) else value
    return found


_NEW_JOB = bulk.defaults(Job)
_NAME = SealedName("records.record")
_DIGEST = SealedText("erasure_requests.body_digest")
_REF = bulk.types(Model, ref="ref")
_READ_MODELS = (
    "SELECT m.id, m.ref, m.method, m.config, m.state, m.decide, m.cooling_off, "
    "(SELECT j.id FROM jobs j WHERE j.model_id = m.id AND j.done_at IS NULL "
    "AND j.stage <> 'awaiting' LIMIT 1) "  # PARKED
    "FROM {rows} JOIN models m ON m.ref = given.ref"
)
_SENT = bulk.types(ErasureRequest, keyid="keyid", tag="idempotency_key")
_READ_EARLIER = (
    "SELECT r.keyid, r.idempotency_key, r.id, r.body_digest "
    "FROM {rows} JOIN erasure_requests r "
    "ON r.keyid = given.keyid AND r.idempotency_key = given.tag"
)
_NAMED = _REF | bulk.types(Record, record="record")
# A subquery on both columns of the key: for a join, PostgreSQL reads all records of the model
# for each named one, until it has statistics.
_READ_RECORDS = (
    "SELECT r.model_id, r.record, r.id, r.claimed_by IS NOT NULL, s.client_tag, s.subject_tag "
    "FROM {rows} JOIN models m ON m.ref = given.ref "
    "JOIN records r ON r.id = (SELECT named.id FROM records named "
    "WHERE named.model_id = m.id AND named.record = given.record) "
    "JOIN subjects s ON s.id = r.subject_id"
)
_CLAIMED = bulk.types(Record, id="id", claimed_by="claimed_by")
_CLAIM = (
    "UPDATE records SET claimed_by = given.claimed_by FROM {rows} "
    "WHERE records.id = given.id AND records.claimed_by IS NULL RETURNING records.id"
)
