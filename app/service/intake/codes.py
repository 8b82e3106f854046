"""Codes that operators give to people whose identity they checked themselves."""

import hmac
import secrets
from datetime import UTC, datetime, timedelta

from sqlmodel import Session

from app.service.intake.case_code import grouped, plain, spell
from app.service.intake.request import EMAIL
from app.vault.master import RootSecret
from lethe import canonical
from lethe.identity import IdentityError, digests
from models import IntakeCode
from models.database.types import clock

BITS = 80  # 16 letters and digits
LIFE_DAYS = 14
MAX_CHECKED = 300  # characters


def issue(
    session: Session, root_secret: RootSecret, kind: str, value: str, checked: str, by: str
) -> str:
    """Store a new code for an identity and return it, once.

    checked: how the identity was checked. by: the name of the issuer's token, who counts as a
    submitter of requests made with the code. Raises IdentityError if the value is invalid for
    its kind, or an address that is not ASCII.
    """
    if kind == EMAIL and not value.strip().isascii():
        raise IdentityError("the page takes e-mail addresses in ASCII: write a domain as xn--")
    code = spell(secrets.token_bytes(BITS // 8))
    row = IntakeCode(
        tag=tag_of(root_secret, kind, value, code),
        checked=checked,
        issued_by=by,
        expires_at=clock(session) + timedelta(days=LIFE_DAYS),
        mac="",
    )
    row.mac = _mac(root_secret, row)
    session.add(row)
    session.flush()
    return grouped(code)


def tag_of(root_secret: RootSecret, kind: str, value: str, code: str) -> str:
    """Return the tag that an identity's code is found by. Raises IdentityError as `digests`."""
    said = canonical.encode([kind, digests(kind, value)["sha256"].hex(), plain(code)])
    return hmac.digest(root_secret.derive("intake/code"), said, "sha256").hex()


def find(
    session: Session, root_secret: RootSecret, tag: str, now: datetime
) -> IntakeCode | None:
    """Return a code that was issued here and is neither expired nor used."""
    row = session.get(IntakeCode, tag)
    if row is None or row.expires_at <= now:
        return None
    return (
        row if hmac.compare_digest(row.mac.encode(), _mac(root_secret, row).encode()) else None
    )


def _mac(root_secret: RootSecret, row: IntakeCode) -> str:
    expires = row.expires_at.astimezone(UTC).isoformat()
    said = canonical.encode([row.tag, row.checked, row.issued_by, expires])
    return hmac.digest(root_secret.derive("intake/code-row"), said, "sha256").hex()
