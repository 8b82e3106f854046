"""Sessions: a sealed cookie that names a bearer token, or a person signed in by OIDC.

Only the end of a session is stored: the cookie is sealed under a key derived from the master
key, and the row of its token is read at each request, so a revoked token ends its sessions. A
session that was signed out is listed with the spent nonces until it would have expired.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from secrets import token_urlsafe
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from app.api.http.attempts import Bound, Limits, client_of, of_client
from app.api.http.deps import ServicesDep
from app.ledger.authority import act_for
from app.ledger.key_rows import believed
from app.problems import ForbiddenError, UnauthorizedError
from app.service.access import keys
from app.service.access.roles import DECIDING, ROLES
from app.service.context import Services
from app.vault.errors import SealError
from app.vault.seal import open_sealed, seal
from lethe.errors import LetheError
from lethe.signing.http import SignedBy
from models import BearerToken, UsedNonce

PURPOSE = "console/session"
IDLE = timedelta(minutes=30)  # a session without requests ends after this
LONGEST = timedelta(hours=10)  # a working day
LONGEST_OIDC = timedelta(hours=1)  # then the provider is asked again, who may know of a leaver
AGAIN = timedelta(minutes=1)  # a cookie older than this is renewed
ENDED = "/console/session"  # as a keyid, which never has a slash
MOST_COOKIE = 4096  # characters


@dataclass(frozen=True, slots=True)
class Visitor:
    """A signed-in person, by a bearer token (`token`: its digest) or at an OIDC `issuer`."""

    name: str
    role: str
    session: str
    token: str
    begun: datetime
    seen: datetime
    issuer: str = ""

    @property
    def decides(self) -> bool:
        """Whether they may change cases, not only read them."""
        return self.role in DECIDING


def begin(name: str, role: str, token: str = "", issuer: str = "") -> Visitor:
    """Return a new session. token: the digest of the bearer token it depends on, if any."""
    now = datetime.now(UTC)
    return Visitor(name, role, token_urlsafe(16), token, now, now, issuer)


def cookie_name(services: Services) -> str:
    """Return the cookie's name; with TLS, its prefix binds it to this host."""
    return "__Host-lethe-console" if is_secure(services) else "lethe-console"


def is_secure(services: Services) -> bool:
    """Whether people reach the console over TLS."""
    return services.settings.public_url.startswith("https://")


def write_cookie(services: Services, response: Response, visitor: Visitor) -> None:
    """Send the session's cookie."""
    times = {"begun": visitor.begun.isoformat(), "seen": visitor.seen.isoformat()}
    said = asdict(visitor) | times
    set_cookie(services, response, cookie_name(services), pack(services, PURPOSE, said))


def set_cookie(
    services: Services, response: Response, name: str, value: str, **more: Any
) -> None:
    """Send a cookie that scripts cannot read and other sites cannot send."""
    how: dict[str, Any] = {"samesite": "strict", "httponly": True, "path": "/"}
    response.set_cookie(name, value, secure=is_secure(services), **{**how, **more})


def pack(services: Services, purpose: str, said: dict[str, str]) -> str:
    """Seal data that a browser stores but must neither read nor change."""
    key = services.root_secret.derive(purpose)
    return urlsafe_b64encode(seal(key, json.dumps(said).encode(), purpose.encode())).decode()


def unpack(services: Services, purpose: str, text: str) -> dict[str, str] | None:
    """Return the data that `pack` sealed, None for anything else."""
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
    """Return the signed-in visitor with the current rights of their token, or None."""
    said = unpack(services, PURPOSE, request.cookies.get(cookie_name(services), ""))
    if said is None:
        return None
    begun, seen = (datetime.fromisoformat(said.pop(name)) for name in ("begun", "seen"))
    visitor = Visitor(**said, begun=begun, seen=seen)
    now = datetime.now(UTC)
    longest = LONGEST if visitor.token else LONGEST_OIDC
    if not visitor.token and visitor.issuer != services.settings.oidc_issuer:
        return None  # the operator changed or removed the provider
    if visitor.seen + IDLE < now or visitor.begun + longest < now:
        return None
    with services.reading() as session:
        if session.get(UsedNonce, (ENDED, visitor.session)) is not None:
            return None
        if visitor.token:
            row = believed(session, BearerToken, visitor.token)
            if row is None or row.revoked_at is not None:
                return None
            visitor = replace(visitor, name=row.name, role=row.scope)
    return visitor if visitor.role in ROLES else None


def end(services: Services, visitor: Visitor) -> None:
    """End a session: its cookie is invalid from now on, copies included."""
    services.nonces.note(spendable(ENDED, visitor.session, visitor.begun + LONGEST))


def spendable(kind: str, nonce: str, expires: datetime) -> SignedBy:
    """Return an entry for the book of nonces. kind: used as keyid, which no key has."""
    return SignedBy(kind, nonce, expires, expires, frozenset())


def renew(services: Services, response: Response, visitor: Visitor) -> None:
    """Extend the idle limit, if the cookie is older than AGAIN."""
    now = datetime.now(UTC)
    if now - visitor.seen > AGAIN:
        write_cookie(services, response, replace(visitor, seen=now))


async def signed_in(request: Request, services: ServicesDep) -> Visitor:
    """Return the signed-in visitor. Raises UnauthorizedError if there is none."""
    visitor = await run_in_threadpool(visitor_of, services, request)
    if visitor is None:
        raise UnauthorizedError("sign in: there is no session, or it has ended")
    request.state.visitor = visitor
    if visitor.token:
        act_for(partial(keys.require_active, visitor.token))
    return visitor


SignedIn = Annotated[Visitor, Depends(signed_in)]


def deciding(visitor: SignedIn) -> Visitor:
    """Return the visitor. Raises ForbiddenError unless they may decide."""
    if not visitor.decides:
        raise ForbiddenError("an auditor reads and decides nothing: this is for officers")
    return visitor


Deciding = Annotated[Visitor, Depends(deciding)]


FAILED = Bound("failed sign-ins", 20, 900.0)


@contextmanager
def counted(request: Request, failure: type[LetheError]) -> Iterator[None]:
    """Refuse the block to a client that failed too often; count it if it ends in `failure`.

    Raises AttemptsError if it did, without reading its input.
    """
    limits: Limits = request.app.state.sign_ins
    client = of_client(FAILED, client_of(request))
    limits.check(*client)
    try:
        yield
    except failure:
        limits.take(*client)
        raise
