"""Accepting an erasure request, from its verified signature to its receipt."""

import base64
from collections.abc import Sequence

from anyio.to_thread import run_sync
from sqlmodel import Session, select

from app import traces
from app.ledger.receipt import EntryReceipt
from app.ledger.transaction import Transaction
from app.problems import IdempotencyMismatchError, ScopeChangedError
from app.schemas.requests import Accepted, NewRequest, Preview, Receipt, Scope
from app.service.access import quota
from app.service.admission import (
    FEW,
    MISMATCH,
    Entered,
    New,
    Submission,
    admit,
    choose,
    opening,
)
from app.service.context import Services
from app.service.pairs import NO_TEST, Pairs, count_pairs
from app.service.scope import check_scope, check_size, narrow
from app.service.signatures import current_key
from app.steps import reached
from lethe.catalogue import TESTED
from lethe.errors import LetheError
from lethe.signing.http import SignedBy
from models import ErasureRequest, Model, Record, RequestEvent
from models.database.bulk import Rows, Statement

ALONE = (
    "This request erases a single record, and the model is updated for it alone if no other "
    "waits with it. Whoever has the model from before and from after can then compute the "
    "record from the difference. The operator can have requests wait for one another, or you "
    "can name several records in one."
)
NARROWED = (
    "The key is bound to a client or subject, and the request to what of it is the key's: "
    "see its scope."
)
TOO_FEW = (
    "{method} cannot be certified here on {records} record(s): its tests need {needed} pairs "
    "of an erased record that was trained on and a held-out record of the same client, and "
    "there are at most {most}. Its result would be discarded and the model retrained: name the "
    "method retrain to begin with that."
)
CHECKS = 3  # attempts before ScopeChangedError is answered
_Item = tuple[Services, Submission]


async def submit(services: Services, submission: Submission) -> Accepted:
    """Make a request durable and return its receipt.

    When this returns, the log entry, the request and its job are on disk together and the
    checkpoint that proves it is signed. The same Idempotency-Key gets the same answer.
    Raises an error of `app.problems` or `lethe.signing.errors`, and stores nothing.
    """
    reached("request.checked")
    names = submission.wanted.scope.records or []
    check_size(names, services.settings.max_scope_records)
    if len(names) > FEW:
        # Ten thousand unknown ids cost a second: not under the lock of the log.
        await run_sync(_explain, services, submission)
    for tried in range(1, CHECKS + 1):
        try:
            with traces.part("request admission"):
                entered = await services.committer.run(ADMISSION, (services, submission))
            break
        except ScopeChangedError:  # now the reason can be found
            if tried == CHECKS:
                raise
            submission = submission.again()
            await run_sync(_explain, services, submission)
    reached("request.committed")
    if entered.new is not None:
        traces.queued(entered.new.job_id, "erase")
        if entered.new.nudge is not None:
            services.dispatcher.nudge(entered.new.nudge)
    reached("request.dispatched")
    asked = submission.wanted.scope
    if entered.new is None:
        return await run_sync(_repeated, services, entered.request_id, asked)
    receipt = services.ledger.recent_receipt(entered.new.log_index)
    if receipt is None:
        receipt = await run_sync(services.ledger.receipt, entered.new.log_index)
    pairs = NO_TEST
    if entered.new.method in TESTED:
        pairs = await run_sync(_pairs_of, services, entered.request_id)
    return _accepted(services, entered, entered.new, pairs, asked, receipt)


class _Admission:
    """Admits the submissions of one process that arrived together."""

    def opening(self, items: Sequence[_Item]) -> list[Statement]:
        """Return the statements that admission begins with."""
        (services, _), *_ = items
        return opening(services, [submission for _, submission in items])

    def __call__(
        self, tx: Transaction, items: Sequence[_Item], answers: Rows
    ) -> list[Entered | Exception]:
        """Admit the submissions in order."""
        (services, _), *_ = items
        return admit(services, tx, [submission for _, submission in items], answers)


ADMISSION = _Admission()  # one instance: the committer compares handlers


def preview(services: Services, signed: SignedBy, wanted: NewRequest) -> Preview:
    """Return what a request would do if it were submitted now. Nothing is stored.

    Raises as `submit`.
    """
    check_size(wanted.scope.records or [], services.settings.max_scope_records)
    with services.reading() as session:
        key = current_key(session, signed, "requester")
        quota.check_now(session, key.keyid, services.settings.open_requests_per_key)
        model = session.exec(select(Model).where(Model.ref == wanted.model)).first()
        method = choose(model, wanted)
        assert model is not None
        scope = narrow(wanted.scope, key)
        records = check_scope(session, services.root_secret, model, key, scope)
        pairs = count_pairs(services.ledger, session, model, method, scope)
    found = scope.model_dump(exclude_none=True)
    return Preview(
        model=wanted.model,
        method=method,
        records=records,
        pairs=pairs.most,
        needed=pairs.needed,
        warnings=_warnings(services, method, records, pairs, found, wanted.scope),
    )


async def is_repeated(services: Services, submission: Submission) -> bool:
    """Return whether a request with this Idempotency-Key was accepted before."""

    def look() -> bool:
        with services.reading() as session:
            return _earlier(session, submission) is not None

    return await run_sync(look)


def _earlier(session: Session, submission: Submission) -> ErasureRequest | None:
    """Return the request that a submission repeats, by its Idempotency-Key."""
    if submission.idempotency_key is None:
        return None
    query = select(ErasureRequest).where(
        ErasureRequest.keyid == submission.signed.keyid,
        ErasureRequest.idempotency_key == submission.idempotency_key,
    )
    return session.exec(query).first()


def _explain(services: Services, submission: Submission) -> None:
    """Raise the reason why a submission cannot be accepted; reads a snapshot, locks nothing."""
    with services.reading() as session:
        key = current_key(session, submission.signed, "requester")
        if (earlier := _earlier(session, submission)) is not None:
            if earlier.body_digest != submission.digest:
                raise IdempotencyMismatchError(MISMATCH)
            return
        wanted = submission.wanted
        model = session.exec(select(Model).where(Model.ref == wanted.model)).first()
        choose(model, wanted)
        assert model is not None
        check_scope(session, services.root_secret, model, key, narrow(wanted.scope, key))


def _pairs_of(services: Services, request_id: str) -> Pairs:
    """Return the pairs of an accepted request, NO_TEST once its records are erased or free.

    Then nobody can choose another method for it. NO_TEST too if they cannot be counted: the
    request is stored, and its receipt owed.
    """
    with services.reading() as session:
        claimed = select(Record.id).where(Record.claimed_by == request_id).limit(1)
        if session.exec(claimed).first() is None:
            return NO_TEST
        request = session.get_one(ErasureRequest, request_id)
        model = session.get_one(Model, request.model_id)
        scope = Scope.model_validate(request.scope)
        try:
            return count_pairs(services.ledger, session, model, request.method, scope)
        except LetheError:  # the log and its tables differ: whoever executes it says so
            return NO_TEST


def _accepted(
    services: Services,
    entered: Entered,
    new: New,
    pairs: Pairs,
    asked: Scope,
    receipt: EntryReceipt,
) -> Accepted:
    return Accepted(
        id=entered.request_id,
        ref=new.ref,
        state=new.state,  # as accepted, though a worker may have begun by now
        due_at=new.due_at,
        receipt=_on_the_wire(receipt),
        warnings=_warnings(
            services,
            new.method,
            new.records,
            pairs,
            new.scope.model_dump(exclude_none=True),
            asked,
        ),
    )


def _repeated(services: Services, request_id: str, asked: Scope) -> Accepted:
    """Return the answer to a request that was accepted before, with its current state."""
    with services.reading() as session:
        request = session.get_one(ErasureRequest, request_id)
        received = session.get(RequestEvent, request.log_index)
        method, records = request.method, 0
        if received is not None:
            method, records = received.payload["method"], received.payload["records"]
    pairs = _pairs_of(services, request_id)
    warnings = _warnings(services, method, records, pairs, request.scope, asked)
    return Accepted(
        id=request.id,
        ref=request.ref,
        state=request.state,
        due_at=request.due_at,
        receipt=_on_the_wire(services.ledger.receipt(request.log_index)),
        warnings=warnings,
    )


def _on_the_wire(receipt: EntryReceipt) -> Receipt:
    return Receipt(
        log_index=receipt.log_index,
        tree_size=receipt.tree_size,
        leaf=base64.b64encode(receipt.leaf).decode(),
        hashes=[base64.b64encode(value).decode() for value in receipt.hashes],
        checkpoint=receipt.checkpoint,
    )


def _warnings(
    services: Services,
    method: str,
    records: int,
    pairs: Pairs,
    scope: dict[str, object],
    asked: Scope,
) -> list[str]:
    """Return the warnings for the requester.

    They are the same in each answer to a request, but for TOO_FEW: its numbers are those of
    now.
    """
    warnings = []
    if pairs.most < pairs.needed:
        counts = {"needed": pairs.needed, "most": pairs.most}
        warnings.append(TOO_FEW.format(method=method, records=records, **counts))
    if records == 1 and services.settings.batch_min_requests == 1:
        warnings.append(ALONE)
    if scope != asked.model_dump(exclude_none=True):
        warnings.append(NARROWED)
    return warnings
