"""Opening a case for a proven identity: one transaction, with a log entry on the proof."""

import secrets

from app.ledger.journal import record_model_event
from app.ledger.transaction import Transaction
from app.problems import (
    ConflictError,
    ContributionPendingError,
    ModelNotReadyError,
    ScopeChangedError,
)
from app.reconcile.fsck.intake import REQUESTER, issuer_commitment
from app.schemas.people import NewCase, PersonIdentity
from app.service.context import Services
from app.service.desk.opening import open_case
from app.service.intake import challenge
from app.service.intake.challenge import Answered
from app.service.intake.errors import IntakeLaterError, IntakeSignatureError
from app.service.intake.request import EMAIL, IntakeRequest, statement_of
from lethe.certificates.intake_receipt import (
    EVENT,
    BrowserSignature,
    IntakeRecord,
    check_statement,
    record_commitment,
    record_document,
)
from lethe.identity import digests
from lethe.signing.errors import SignatureInvalidError
from lethe.signing.keys import fingerprint, load_public_key
from models import Case, IntakeProof

NO_KEY = "no key of the browser signed"
# Problems for the operators, which the person cannot solve.
LATER = (
    ConflictError,
    ContributionPendingError,
    ModelNotReadyError,
    ScopeChangedError,
)


class _RacedError(Exception):
    """Another call concluded the challenge meanwhile."""


def confirm(
    services: Services,
    ref: str,
    session: str,
    code: str,
    signed: BrowserSignature | None,
    service: str,
) -> str:
    """Open the case of a challenge that the code answers; return its reference.

    Sent again, it returns the same case. signed: by the browser's key, if it has one.

    Raises:
        IntakeExpiredError, IntakeCodeError: As `challenge.answer`.
        IntakeSignatureError: The key did not sign the statement.
        IntakeLaterError: The case cannot be opened now; the code stays valid.
        PeopleChangedError: The database and the log disagree.
        UnpublishedError: All is stored, and cannot be signed yet.
    """
    found = challenge.answer(services, ref, session, code)
    if found.case is not None:
        # The call before may have failed after its commit: what it logged is not signed yet.
        services.ledger.transact(lambda _: None)
        return found.case
    try:
        return _open(services, found, signed, service)
    except _RacedError:
        again = challenge.answer(services, ref, session, code)
        if again.case is None:
            raise challenge.expired() from None
        return again.case
    except LATER as error:
        raise IntakeLaterError(
            f"the case cannot be opened now ({error.slug}): try again later"
        ) from error


def _open(
    services: Services, found: Answered, signed: BrowserSignature | None, service: str
) -> str:
    asked = found.asked
    assert asked is not None
    statement = statement_of(services.root_secret, found.ref, asked, found.expires, service)

    try:
        check_statement(statement, signed)
    except SignatureInvalidError as error:
        raise IntakeSignatureError(
            "the browser's key did not sign what the page showed: ask for another code"
        ) from error

    def record_of(case: Case) -> IntakeRecord:
        return IntakeRecord(
            case.ref,
            case.received_at.replace(microsecond=0),
            case.due_at.replace(microsecond=0),
            asked.proven,
            statement,
            signed,
            {part["model"]: part["log_index"] for part in case.parts},
        )

    def also(tx: Transaction, case: Case) -> None:
        if not challenge.conclude(services, tx, found, case.ref):
            raise _RacedError
        record, key = record_of(case), secrets.token_bytes(32)
        said = {"proof": record_commitment(key, record)}
        if found.issued_by is not None:
            assert case.key is not None
            said["issuer"] = issuer_commitment(case.key, case.ref, found.issued_by)
        index = record_model_event(tx, case.parts[0]["model"], EVENT, said)
        proof = IntakeProof(
            case_ref=case.ref,
            record=record_document(record),
            issued_by=found.issued_by,
            key=key,
            log_index=index,
        )
        tx.session.add(proof)
        tx.session.flush()

    wanted = _wanted(asked, found, signed)
    return open_case(services, wanted, REQUESTER, also=also, issued_by=found.issued_by).ref


def _wanted(asked: IntakeRequest, found: Answered, signed: BrowserSignature | None) -> NewCase:
    digest = {name: value.hex() for name, value in digests(asked.kind, asked.value).items()}
    key = (
        NO_KEY
        if signed is None
        else f"signed by the browser's key {fingerprint(load_public_key(signed.key.encode()))}"
    )
    checked = "" if found.checked is None else f" ({found.checked})"
    return NewCase(
        person=PersonIdentity(kind=asked.kind, **digest),
        regulation=asked.regulation,
        ticket=REQUESTER,
        checked=f"intake page: {asked.proven}{checked}; {key}",
        contact=asked.value if asked.kind == EMAIL else None,
    )
