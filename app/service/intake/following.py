"""What a person does with their case: follow it, keep its receipt, withdraw it."""

import hmac
from collections.abc import Sequence

from sqlalchemy import delete, or_
from sqlmodel import Session, col, select

from app.ledger.transaction import Transaction
from app.problems import NotFoundError, NotWithdrawableError
from app.reconcile.fsck.intake import REQUESTER
from app.reconcile.model_events import model_events
from app.schemas.people import CaseView
from app.service.context import Services
from app.service.desk import decisions
from app.service.desk.cases import show
from app.service.intake.errors import IntakeCaseError, IntakeChangedError
from app.service.intake.request import salt_of
from app.service.parts import consistent, find_case
from app.service.requests import CLOSED
from lethe.certificates.intake_receipt import (
    EVENT,
    RECEIPT_TYPE,
    IntakeEntry,
    IntakeReceipt,
    IntakeRecord,
    encode_receipt,
    read_record,
    record_commitment,
)
from lethe.errors import LetheError
from models import Case, ErasureRequest, IntakeChallenge, IntakeCode, IntakeProof
from models.database.types import clock

_DESTROYED = col(IntakeProof.record), col(IntakeProof.key), col(IntakeProof.issued_by)
GONE = "no case has this code, or it ended so long ago that it was forgotten"


def follow(services: Services, ref: str) -> CaseView:
    """Return a case that was opened on the page, after checking it against the log.

    Raises:
        IntakeCaseError: There is none, or its retention has ended.
        IntakeChangedError: Database and log disagree on how it began.
        PeopleChangedError: Its parts are not those that the log commits to.
    """
    _proof(services, ref)
    return show(services, ref)


def receipt(services: Services, ref: str) -> bytes:
    """Return the receipt of a case; `lethe case verify-receipt` checks it offline.

    Raises as `follow`, and UnpublishedError if no checkpoint covers the entry yet.
    """
    record, key, index = _proof(services, ref)
    entry = services.ledger.receipt(index)
    return encode_receipt(
        IntakeReceipt(
            RECEIPT_TYPE,
            record,
            key,
            salt_of(services.root_secret, record.statement.nonce),
            IntakeEntry(index, entry.tree_size, entry.leaf, entry.hashes, entry.checkpoint),
        )
    )


def withdraw(services: Services, ref: str) -> None:
    """Withdraw the requests of a case that have not begun.

    Raises:
        NotWithdrawableError: Some can no longer be withdrawn.
        UnpublishedError: All is stored, and cannot be signed yet.
        As `follow`.
    """
    services.ledger.transact(lambda _: None)  # sent again: what the first call logged, too
    _proof(services, ref)
    late = None
    for request in _own(services, ref):
        if request.state in CLOSED:
            continue
        try:
            decisions.withdraw(services, request.id, REQUESTER)
        except NotWithdrawableError as error:
            late = error
    if late is not None:
        raise late


def followed(services: Services, case: CaseView) -> set[str]:
    """Return the models in which a case follows, or followed, another's request."""
    own = {one.id for one in _own(services, case.ref)}
    return {part.model for part in case.parts if part.request not in own}


def can_withdraw(services: Services, ref: str) -> bool:
    """Return whether a request of a case may still be withdrawn, by its rows."""
    ended = (*CLOSED, "failed", "executing")
    return any(one.state not in ended for one in _own(services, ref))


def _own(services: Services, ref: str) -> list[ErasureRequest]:
    """Return the requests that were submitted with a case: it may also follow another's."""
    return consistent(services, lambda session: decisions.requests_of(services, session, ref))


def _proof(services: Services, ref: str) -> tuple[IntakeRecord, bytes, int]:
    """Return a case's intake record, the key that opens its commitment, and the log index."""
    with services.reading() as session:
        row = session.get(IntakeProof, ref)
        if row is None or row.record is None or row.key is None:
            raise IntakeCaseError(GONE)
        try:
            case = find_case(session, ref)
        except NotFoundError:
            raise IntakeCaseError(GONE) from None
        opened_by, model = case.opened_by, case.parts[0]["model"]
    changed = IntakeChangedError(
        "the database has how the case began otherwise than the log: run `lethe log fsck`"
    )
    try:
        record = read_record(row.record)
    except LetheError:
        raise changed from None
    logged = model_events(services.ledger, model, EVENT)
    place = logged.before(row.log_index)
    if place >= len(logged) or logged[place][0] != row.log_index:
        raise changed
    digest = logged[place][1].digests.get("proof", "")
    committed = record_commitment(row.key, record)
    same = hmac.compare_digest(digest.encode(), committed.encode())
    if not same or record.case != ref or opened_by != REQUESTER:
        raise changed
    return record, row.key, row.log_index


def forget(services: Services) -> int:
    """Destroy expired challenges and codes; return how many."""

    def count(session: Session, *, do: bool) -> int:
        now = clock(session)
        over = 0
        for table in (IntakeChallenge, IntakeCode):
            late = col(table.expires_at) <= now
            found = session.exec(select(table.expires_at).where(late)).all()
            over += len(found)
            if do and found:
                session.connection().execute(delete(table).where(late))
        return over

    with services.reading() as session:
        if not count(session, do=False):
            return 0
    return services.ledger.transact(lambda tx: count(tx.session, do=True), checkpoint=False)


def forget_proofs(services: Services) -> int:
    """Destroy the proofs of cases without a key; return how many.

    A case's key is destroyed together with its proof: these are of a changed database. All
    proofs are read, so no sweep calls this.
    """
    with services.reading() as session:
        if not _ended(session):
            return 0

    def effect(tx: Transaction) -> int:
        return sum(destroy_proof(tx.session, row.case_ref) for row in _ended(tx.session))

    return services.ledger.transact(effect, checkpoint=False)


def destroy_proof(session: Session, ref: str) -> bool:
    """Destroy the proof of a case; return whether there was one. Commits nothing."""
    row = session.get(IntakeProof, ref)
    if row is None:
        return False
    row.record = row.key = row.issued_by = None
    return True


def _ended(session: Session) -> Sequence[IntakeProof]:
    ended = (
        select(IntakeProof)
        .join(Case, col(Case.ref) == col(IntakeProof.case_ref), isouter=True)
        .where(col(Case.key).is_(None))
        .where(or_(*(one.is_not(None) for one in _DESTROYED)))
    )
    return session.exec(ended).all()
