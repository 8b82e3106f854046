"""Who a bearer token speaks for."""

import hashlib

from sqlmodel import Session

from app.ledger.key_rows import believed
from app.service.problems import ForbiddenError, UnauthorizedError
from models import BearerToken


def is_known(session: Session, header: str) -> bool:
    """Return whether an Authorization header has a good token, whatever its scope."""
    token = _find(session, header)
    return token is not None and token.revoked_at is None


def authorise(session: Session, header: str | None, scopes: tuple[str, ...]) -> BearerToken:
    """Return the token of an Authorization header if its scope is among `scopes`.

    Raises:
        UnauthorizedError: No token, or one that is unknown or revoked.
        ForbiddenError: The token's scope does not cover the call.
    """
    if not _value(header or ""):
        raise UnauthorizedError(
            "send Authorization: Bearer <token>; `lethe token new` makes one"
        )
    token = _find(session, header or "")
    if token is None or token.revoked_at is not None:
        raise UnauthorizedError("the token is unknown or revoked: ask an operator for another")
    if token.scope not in scopes:
        raise ForbiddenError(f"this call needs a token of scope {' or '.join(scopes)}")
    return token


def _value(header: str) -> str:
    kind, _, value = header.partition(" ")
    return value.strip() if kind.lower() == "bearer" else ""


def _find(session: Session, header: str) -> BearerToken | None:
    # The digest is the key of the look-up, so no comparison of secrets can leak its timing.
    digest = hashlib.sha256(_value(header).encode()).hexdigest()
    return believed(session, BearerToken, digest)
