"""Who is signed in: a sealed cookie that names a bearer token, or a person whom OIDC named.

Nothing is kept of a session but its end: the cookie is sealed under a key derived from the
master key, and the row of its token is read at each request, so a revoked token ends its
sessions. A session that was signed out is listed beside the spent nonces until it would have
ended by itself.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from secrets import token_urlsafe
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from sqlmodel import Session

from app.api.http.deps import ServicesDep
from app.ledger.key_rows import believed
from app.problems import ForbiddenError, UnauthorizedError
from app.service.access.roles import DECIDING, ROLES
from app.service.context import Services
from app.vault.errors import SealError
from app.vault.seal import open_sealed, seal
from lethe.signing.http import SignedBy
from models import BearerToken, UsedNonce

PURPOSE = "console/session"
IDLE = timedelta(minutes=30)  # without a page, a session ends
LONGEST = timedelta(hours=10)  # a working day
LONGEST_OIDC = timedelta(hours=1)  # then the provider is asked again, who may have left
AGAIN = timedelta(minutes=1)  # a cookie older than this is written anew
ENDED = "/console/session"  # as a keyid, which never has a slash
MOST_COOKIE = 4096  # characters


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who is signed in: by a token, of which this is the digest, or at an issuer."""

    name: str
    role: str
    session: str
    token: str
    begun: datetime
    seen: datetime
    issuer: str = ""

    @property
    def decides(self) -> bool:
        """Whether they may change cases, and not only read."""
        return self.role in DECIDING


def begin(name: str, role: str, token: str = "", issuer: str = "") -> Visitor:
    """Return a new session. token: the digest of the row that it lives as long as, if any."""
    now = datetime.now(UTC)
    return Visitor(name, role, token_urlsafe(16), token, now, now, issuer)


def cookie_name(services: Services) -> str:
    """Return the cookie's name; the prefix binds it to this host, where there is TLS."""
    return "__Host-lethe-console" if is_secure(services) else "lethe-console"


def is_secure(services: Services) -> bool:
    """Whether people reach the console over TLS."""
    return services.settings.public_url.startswith("https://")


def write_cookie(services: Services, response: Response, visitor: Visitor) -> None:
    """Send the session's cookie."""
    said = {
        "name": visitor.name,
        "role": visitor.role,
        "session": visitor.session,
        "token": visitor.token,
        "issuer": visitor.issuer,
        "begun": visitor.begun.isoformat(),
        "seen": visitor.seen.isoformat(),
    }
    set_cookie(services, response, cookie_name(services), pack(services, PURPOSE, said))


def set_cookie(
    services: Services, response: Response, name: str, value: str, **more: Any
) -> None:
    """Send a cookie that no script reads and no other site sends along."""
    how: dict[str, Any] = {"samesite": "strict", "httponly": True, "path": "/"}
    response.set_cookie(name, value, secure=is_secure(services), **{**how, **more})


def pack(services: Services, purpose: str, said: dict[str, str]) -> str:
    """Seal what a browser keeps for us and must neither read nor change."""
    key = services.root_secret.derive(purpose)
    return urlsafe_b64encode(seal(key, json.dumps(said).encode(), purpose.encode())).decode()


def unpack(services: Services, purpose: str, text: str) -> dict[str, str] | None:
    """Return what `pack` sealed, None if this is nothing of ours."""
    try:
        blob = urlsafe_b64decode(text[:MOST_COOKIE].encode())
        if urlsafe_b64encode(blob).decode() != text:
            return None
        data = open_sealed(services.root_secret.derive(purpose), blob, purpose.encode())
    except (Base64Error, ValueError, SealError):
        return None
    found: dict[str, str] = json.loads(data)
    return found


def visitor_of(services: Services, request: Request) -> Visitor | None:
    """Return who is signed in, with the rights that their token has now; None for nobody."""
    said = unpack(services, PURPOSE, request.cookies.get(cookie_name(services), ""))
    if said is None:
        return None
    visitor = Visitor(
        name=said["name"],
        role=said["role"],
        session=said["session"],
        token=said["token"],
        begun=datetime.fromisoformat(said["begun"]),
        seen=datetime.fromisoformat(said["seen"]),
        issuer=said.get("issuer", ""),
    )
    now = datetime.now(UTC)
    longest = LONGEST if visitor.token else LONGEST_OIDC
    if not visitor.token and visitor.issuer != services.settings.oidc_issuer:
        return None  # the operator took another provider, or none
    if visitor.seen + IDLE < now or visitor.begun + longest < now:
        return None
    with services.reading() as session:
        if _has_ended(session, visitor):
            return None
        if visitor.token:
            row = believed(session, BearerToken, visitor.token)
            if row is None or row.revoked_at is not None:
                return None
            visitor = replace(visitor, name=row.name, role=row.scope)
    return visitor if visitor.role in ROLES else None


def _has_ended(session: Session, visitor: Visitor) -> bool:
    return session.get(UsedNonce, (ENDED, visitor.session)) is not None


def end(services: Services, visitor: Visitor) -> None:
    """End a session: its cookie is worth nothing from now on, whoever copied it."""
    services.nonces.note(spendable(ENDED, visitor.session, visitor.begun + LONGEST))


def spendable(kind: str, nonce: str, expires: datetime) -> SignedBy:
    """Return what the book of nonces spends, once. kind: no key has it as its id."""
    return SignedBy(kind, nonce, expires, expires, frozenset())


def renew(services: Services, response: Response, visitor: Visitor) -> None:
    """Move the idle end, if the cookie is not of this minute."""
    now = datetime.now(UTC)
    if now - visitor.seen > AGAIN:
        write_cookie(services, response, replace(visitor, seen=now))


def signed_in(request: Request, services: ServicesDep) -> Visitor:
    """Return who is signed in. Raises UnauthorizedError: nobody."""
    visitor = visitor_of(services, request)
    if visitor is None:
        raise UnauthorizedError("sign in first: nobody is, or the session has ended")
    request.state.visitor = visitor
    return visitor


SignedIn = Annotated[Visitor, Depends(signed_in)]


def deciding(visitor: SignedIn) -> Visitor:
    """Return who may decide. Raises ForbiddenError: auditors read."""
    if not visitor.decides:
        raise ForbiddenError("an auditor reads and decides nothing: this is for officers")
    return visitor


Deciding = Annotated[Visitor, Depends(deciding)]
