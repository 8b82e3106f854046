"""What routes depend on: the services, the operator's token, the signer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Header, Query, Request
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool

from app.service import keys, tokens
from app.service.context import Services
from app.signing.http import SignedBy, verify_request
from models import BearerToken


def get_services(request: Request) -> Services:
    """Return what `app.main` opened at start-up."""
    services: Services = request.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(get_services)]


def get_session(services: ServicesDep) -> Iterator[Session]:
    """A session for reads."""
    with services.reading() as session:
        yield session


SessionDep = Annotated[Session, Depends(get_session)]


def bearer(*scopes: str) -> Callable[..., BearerToken]:
    """Return a dependency that demands a bearer token of one of `scopes`."""

    def check(
        session: SessionDep, authorization: Annotated[str | None, Header()] = None
    ) -> BearerToken:
        return tokens.authorise(session, authorization, scopes)

    return check


Operator = Depends(bearer("operator"))
OperatorOrAuditor = Depends(bearer("operator", "auditor"))


@dataclass(frozen=True, slots=True)
class SignedCall:
    """A request whose signature verified; the nonce is spent later, in the transaction."""

    by: SignedBy
    body: bytes
    idempotency_key: str | None


async def get_signed(request: Request, services: ServicesDep) -> SignedCall:
    """Verify the RFC 9421 signature over this request and its body."""
    body = await request.body()

    def check() -> SignedBy:
        with services.reading() as session:
            return verify_request(
                request.method,
                target_uri(request, services.settings.public_url),
                request.headers,
                body,
                lambda keyid: keys.resolve(session, keyid),
                now=datetime.now(UTC),
            )

    signed = await run_in_threadpool(check)
    return SignedCall(signed, body, request.headers.get("idempotency-key"))


Signed = Annotated[SignedCall, Depends(get_signed)]


def target_uri(request: Request, public_url: str) -> str:
    """Return the URI that the client signed.

    Behind a proxy the request's own host and scheme are the proxy's business, so the
    configured public URL replaces them; the path stays in the spelling it was sent in.
    """
    raw = request.scope.get("raw_path") or request.url.path.encode()
    path = raw.decode("ascii", "replace").partition("?")[0]
    query = request.scope["query_string"].decode("ascii", "replace")
    base = public_url.rstrip("/") or f"{request.url.scheme}://{request.url.netloc}"
    return f"{base}{path}?{query}" if query else f"{base}{path}"


After = Annotated[str | None, Query(max_length=400, description="cursor: `next` of a page")]
Limit = Annotated[int, Query(ge=1, le=1000, description="items a page")]
