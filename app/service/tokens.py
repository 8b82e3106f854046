"""Who a bearer token speaks for."""

import hashlib

from sqlmodel import Session

from app.service.problems import ForbiddenError, UnauthorizedError
from models import BearerToken


def authorise(session: Session, header: str | None, scopes: tuple[str, ...]) -> BearerToken:
    """Return the token of an Authorization header if its scope is among `scopes`.

    Raises:
        UnauthorizedError: No token, or one that is unknown or revoked.
        ForbiddenError: The token's scope does not cover the call.
    """
    kind, _, value = (header or "").partition(" ")
    if kind.lower() != "bearer" or not value:
        raise UnauthorizedError(
            "send Authorization: Bearer <token>; `lethe token new` makes one"
        )
    # The digest is the key of the look-up, so no comparison of secrets can leak its timing.
    token = session.get(BearerToken, hashlib.sha256(value.strip().encode()).hexdigest())
    if token is None or token.revoked_at is not None:
        raise UnauthorizedError("the token is unknown or revoked: ask an operator for another")
    if token.scope not in scopes:
        raise ForbiddenError(f"this call needs a token of scope {' or '.join(scopes)}")
    return token
