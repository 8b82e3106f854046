"""Bearer tokens: made, shown once, and revoked; the database keeps their hashes."""

import hashlib
import secrets

from sqlmodel import Session, col, select

from app.ledger.key_rows import key_rows
from app.ledger.lock import take_lock
from app.problems import BusyError, TokenNameError
from app.reconcile.approval import FROM_OIDC, PAIRED, folded
from app.reconcile.fsck.intake import REQUESTER
from models import BearerToken
from models.database.types import clock

OWN = "lethe:"  # prefix of the names that the service itself uses in the log
MISSING = (
    "no active token has this name: `lethe token list` shows them. If somebody removed or "
    "changed its row, `lethe log fsck` says so; should it be put back, it counts as revoked"
)
SECRET_BYTES = 32  # 43 characters of base64url; too many to guess, so a plain hash will do


def mint(session: Session, scope: str, name: str) -> str:
    """Store the hash of a fresh token and return the token, `lethe_<scope>_<43 characters>`.

    Raises:
        TokenNameError: An active token has this name, it is reserved for the intake page,
            people who sign in by OIDC or the service itself, an agent had it, or it is empty or
            too long.
    """
    if not 0 < len(name) <= 80 or not name.isprintable():
        raise TokenNameError("a token's name has 1 to 80 printable characters")
    compared = folded(name)
    if compared == REQUESTER:
        raise TokenNameError("cases of the intake page have this name: choose another")
    if compared.startswith(FROM_OIDC):
        raise TokenNameError(
            f"names that begin with {FROM_OIDC} are of people who sign in by OIDC"
        )
    own = compared.startswith(OWN)
    if own or (compared.startswith(PAIRED) and scope != "drp"):
        raise TokenNameError(f"names that begin with {OWN} or {PAIRED} are reserved")
    take_lock(session)  # of two commands at once, the second sees the first one's token
    if living_token(session, name) is not None:
        raise TokenNameError("an active token has this name: revoke it or choose another")
    if scope == "agent" and _was_agents(session, name):
        raise TokenNameError(
            "an agent had this name, and its requests carry it: choose another"
        )
    secret = f"lethe_{scope}_{secrets.token_urlsafe(SECRET_BYTES)}"
    digest = hashlib.sha256(secret.encode()).hexdigest()
    # By the clock that ends names: otherwise a machine whose clock is slow could not revoke a
    # token that another machine made just before.
    row = BearerToken(digest=digest, scope=scope, name=name, created_at=clock(session))
    key_rows(session).seal(row)
    session.add(row)
    session.flush()
    return secret


def revoke_named(session: Session, name: str) -> None:
    """Revoke the token of this name, and older ones whose rows lack their revocation.

    Otherwise an old row that somebody restored would be revoked in place of the living one.
    Raises TokenNameError if there is none; an earlier one, restored, counts as revoked.
    """
    take_lock(session)
    found, rows = _unrevoked(session, name), key_rows(session)
    if not any(rows.is_believed(row) for row in found):
        # Otherwise a removed or changed row could be restored after this.
        rows.end_named(name, clock(session))
    if not found:
        raise TokenNameError(MISSING)
    for row in found:
        rows.revoke(row)  # first: after a crash, the revocation can be repeated
        row.revoked_at = clock(session)
        rows.seal(row)
        session.add(row)
    session.flush()


def _was_agents(session: Session, name: str) -> bool:
    """Return whether an agent had this name, which no active token has.

    Its row may not say that it is revoked: whoever revoked it was killed, or has not committed.
    """
    query = select(BearerToken).where(BearerToken.name == name, BearerToken.scope == "agent")
    return session.exec(query).first() is not None


def living_token(session: Session, name: str) -> BearerToken | None:
    """Return the token of this name that was made here and was never revoked."""
    rows = key_rows(session)
    found = (row for row in _unrevoked(session, name) if rows.is_believed(row))
    return next(found, None)


def settled_token(session: Session, name: str) -> BearerToken | None:
    """Return the active token of this name, or None if it was revoked.

    Raises BusyError: it is being revoked or replaced. The list of revocations has it before the
    transaction that marks its row, and stores its successor, is committed.
    """
    rows = key_rows(session)
    unrevoked = _unrevoked(session, name)  # one query: the next one may see the successor
    found = next((row for row in unrevoked if rows.is_believed(row)), None)
    if found is None and unrevoked:
        raise BusyError("the token is being revoked or replaced: try again")
    return found


def _unrevoked(session: Session, name: str) -> list[BearerToken]:
    """Return the rows of this name that were made here and are not marked as revoked."""
    query = select(BearerToken).where(
        BearerToken.name == name, col(BearerToken.revoked_at).is_(None)
    )
    rows = key_rows(session)
    return [row for row in session.exec(query).all() if rows.is_written_here(row)]
