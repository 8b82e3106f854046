"""Codes by e-mail: a person proves their address by the code that was sent to it.

The row has the address sealed, and a MAC over the address, the code, the browser's session and
the expiry. So access to the database is not enough to learn a code, to put another address
under a known code, or to extend one; tries are also counted in memory (`app.intake.route`).
"""

import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime

from app.ledger.transaction import Transaction
from app.service.context import Services
from app.service.intake import codes
from app.service.intake.errors import IntakeCodeError, IntakeExpiredError
from app.service.intake.request import BY_MAIL, LIFE, IntakeRequest, request_of
from app.vault.master import RootSecret
from lethe import canonical
from models import IntakeChallenge

DIGITS = 8
MOST_TRIES = 5


@dataclass(frozen=True, slots=True, repr=False)
class Answered:
    """A challenge that was answered with the right code. case: of an earlier answer.

    Of an operator's code: checked: how the operator checked the person; tag: of the code;
    issued_by: the operator.
    """

    ref: str
    session: str
    code: str
    expires: datetime
    mac: str
    asked: IntakeRequest | None
    case: str | None
    checked: str | None = None
    tag: str | None = None
    issued_by: str | None = None


def ask(services: Services, ref: str, session: str, asked: IntakeRequest) -> str | None:
    """Store a challenge; return the code to send, or None if the form was sent before.

    A challenge that an operator's code answers has no code of its own: returns "".
    """
    by_mail = asked.proven == BY_MAIL
    code = f"{secrets.randbelow(10**DIGITS):0{DIGITS}}" if by_mail else ""

    def effect(tx: Transaction) -> bool:
        if tx.session.get(IntakeChallenge, ref) is not None:
            return False
        row = IntakeChallenge(
            ref=ref, asked=asked.as_json(), mac="", tries=0, expires_at=tx.now + LIFE
        )
        row.mac = _mac(services.root_secret, row, session, code, asked)
        tx.session.add(row)
        tx.session.flush()
        return True

    return code if services.ledger.transact(effect, checkpoint=False) else None


def is_known(services: Services, ref: str) -> bool:
    """Return whether a form was sent before."""
    with services.reading() as session:
        return session.get(IntakeChallenge, ref) is not None


def cancel(services: Services, ref: str) -> None:
    """Delete a challenge whose code could not be sent: the form may be sent again."""

    def effect(tx: Transaction) -> None:
        if (row := tx.session.get(IntakeChallenge, ref)) is not None and row.case_ref is None:
            tx.session.delete(row)
            tx.session.flush()

    services.ledger.transact(effect, checkpoint=False)


def waiting(services: Services, ref: str) -> tuple[IntakeRequest, datetime]:
    """Return a challenge's unproven request and expiry, for the page that shows the statement.

    Raises IntakeExpiredError if it has expired, or was answered.
    """
    with services.reading() as session:
        row = session.get(IntakeChallenge, ref)
        if row is None or row.asked is None:
            raise expired()
        return request_of(row.asked), row.expires_at


def answer(services: Services, ref: str, session: str, code: str) -> Answered:
    """Return a challenge that this code answers; each call is a try.

    Raises IntakeExpiredError: it has expired, was tried too often, or is of another browser;
    IntakeCodeError: the code is wrong.
    """

    def effect(tx: Transaction) -> Answered | int | None:
        row = tx.session.get(IntakeChallenge, ref)
        if row is None or row.expires_at <= tx.now:
            return None
        if row.case_ref is not None:  # sent again: the first answer may have been lost
            given = "".join(code.split())
            mac = _mac(services.root_secret, row, session, given, None)
            again = Answered(ref, session, given, row.expires_at, row.mac, None, row.case_ref)
            return again if hmac.compare_digest(mac.encode(), row.mac.encode()) else None
        if row.tries >= MOST_TRIES or row.asked is None:
            return None
        row.tries += 1
        tx.session.flush()
        found = _match(services.root_secret, tx, row, session, code)
        return MOST_TRIES - row.tries if found is None else found

    found = services.ledger.transact(effect, checkpoint=False)
    if found is None:
        raise expired()
    if isinstance(found, int):
        raise IntakeCodeError("this is not the code that was sent: try again", left=found)
    return found


def _match(
    root_secret: RootSecret, tx: Transaction, row: IntakeChallenge, session: str, code: str
) -> Answered | None:
    assert row.asked is not None
    asked = request_of(row.asked)
    given = "".join(code.split())
    known = given if asked.proven == BY_MAIL else ""
    mac = _mac(root_secret, row, session, known, asked)
    if not hmac.compare_digest(mac.encode(), row.mac.encode()):
        return None
    checked = tag = issuer = None
    if asked.proven != BY_MAIL:
        tag = codes.tag_of(root_secret, asked.kind, asked.value, given)
        if (issued := codes.find(tx.session, root_secret, tag, tx.now)) is None:
            return None
        checked, issuer = issued.checked, issued.issued_by
    found = row.ref, session, given, row.expires_at, row.mac, asked, None
    return Answered(*found, checked, tag, issuer)


def conclude(services: Services, tx: Transaction, found: Answered, case: str) -> bool:
    """Destroy the request's details and note the case; False if another call was faster."""
    row = tx.session.get(IntakeChallenge, found.ref)
    if row is None or row.case_ref is not None or row.mac != found.mac:
        return False
    if found.tag is not None:
        issued = codes.find(tx.session, services.root_secret, found.tag, tx.now)
        if issued is None:
            return False
        tx.session.delete(issued)
    row.asked, row.case_ref = None, case
    row.mac = _mac(services.root_secret, row, found.session, found.code, None)
    tx.session.flush()
    return True


def expired() -> IntakeExpiredError:
    """Return the one error for all challenges that can no longer be answered."""
    return IntakeExpiredError("the code has expired or was tried too often: ask for another")


def _mac(
    root_secret: RootSecret,
    row: IntakeChallenge,
    session: str,
    code: str,
    asked: IntakeRequest | None,
) -> str:
    said = [
        row.ref,
        session,
        row.expires_at.astimezone(UTC).isoformat(),
        code,
        row.case_ref or "",
        asked.as_json() if asked is not None else {},
    ]
    key = root_secret.derive("intake/challenge")
    return hmac.digest(key, canonical.encode(said), "sha256").hex()
