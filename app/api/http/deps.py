"""Dependencies of routes: the services, the operator's token, the signer.

No dependency holds a database connection while its route runs: routes that wait for the log's
lock would keep theirs, and 40 of them would leave none for the writer.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

from fastapi import Depends, Header, Query, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.models import APIKey, APIKeyIn, HTTPBase, SecurityBase
from fastapi.security.base import SecurityBase as Dependency
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from app.api.http.forms import feed
from app.api.http.limits import announces_body
from app.api.http.rates import Rates, counted, note_counted
from app.ledger.authority import act_for
from app.problems import IdempotencyKeyError
from app.service.access import keys
from app.service.access.roles import DECIDING, ROLES
from app.service.context import Services
from app.service.signatures import KnownKey, Role, check_role, current_key
from app.uploads.spool import Spool
from lethe.errors import LetheError
from lethe.signing.errors import KeyUnknownError, SignatureInvalidError, SignatureReplayedError
from lethe.signing.http import ArrivingBody, SignedBy, check_body, verify_head
from lethe.signing.keys import Algorithm, PublicKey
from models import BearerToken

MAX_IDEMPOTENCY_KEY = 254  # characters; the column that stores it has room for the mark
UNCOVERED = "\u00ac"  # marks a key that the signature does not cover
MAX_NUMBER = 2**63 - 1  # the largest integer of both databases


class Scheme(Dependency):
    """A dependency that checks nothing: it only declares the scheme in OpenAPI."""

    def __init__(self, name: str, model: SecurityBase) -> None:
        self.scheme_name = name
        self.model = model

    async def __call__(self) -> None:
        """Do nothing."""


BEARER = Scheme(
    "bearer",
    HTTPBase(
        scheme="bearer",
        description="A token of `lethe token new`: operator, officer or auditor.",
    ),
)
SIGNATURE = Scheme(
    "httpSignature",
    # OpenAPI has no type for RFC 9421, and no authentication scheme is registered for it.
    APIKey.model_validate(
        {
            "in": APIKeyIn.header,
            "name": "Signature",
            "description": (
                "RFC 9421, with `Signature-Input` and, of a body, `Content-Digest` (RFC 9530): "
                "tag lethe-erasure, keyid, nonce, created and expires, over @method, "
                "@target-uri, content-type, content-digest and, if sent, idempotency-key. "
                "The nonce is spent once the signature verifies."
            ),
        }
    ),
)


def get_services(request: Request) -> Services:
    """Return the services that `app.main` opened at start-up."""
    services: Services = request.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(get_services)]


def bearer(*scopes: str) -> Callable[..., Awaitable[BearerToken]]:
    """Return a dependency that demands a bearer token of one of `scopes`."""

    async def check(
        request: Request,
        services: ServicesDep,
        _: Annotated[None, Security(BEARER)],
        authorization: Annotated[str | None, Header(include_in_schema=False)] = None,
    ) -> BearerToken:
        return await _authorise(request, services, authorization, scopes)

    return check


async def _authorise(
    request: Request, services: Services, authorization: str | None, scopes: tuple[str, ...]
) -> BearerToken:
    def read() -> BearerToken:
        with services.reading() as session:
            return keys.authenticate(session, authorization)

    token = await run_in_threadpool(read)
    count_call(request, f"token {token.name}")
    keys.require_scope(token, scopes)
    act_for(partial(keys.require_active, token.digest))  # not in a thread, whose context ends
    return token


def count_call(request: Request, caller: str) -> None:
    """Count a call of a key or token, once. Raises RateLimitError if it exceeds the limit."""
    if counted(request.scope) == caller:  # by another of the route's dependencies
        return
    note_counted(request.scope, caller)
    _rates(request).take(caller)


@contextmanager
def counting(request: Request, caller: str) -> Iterator[None]:
    """Count the call of the block once it is known to be no replay: if nothing is raised.

    Raises RateLimitError, and does not enter the block, if the call would exceed the limit.
    """
    rates = _rates(request)
    note_counted(request.scope, caller)
    rates.check(caller)
    note_counted(request.scope, None)
    yield
    rates.count(caller)
    note_counted(request.scope, caller)


def _rates(request: Request) -> Rates:
    rates: Rates = request.app.state.rates
    return rates


Operator = Depends(bearer("operator"))
Deciding = Depends(bearer(*DECIDING))
OperatorOrAuditor = Depends(bearer(*ROLES))  # all roles may read


@dataclass(frozen=True, slots=True)
class SignedCall:
    """A request whose signature verified. key: the key that verified it.

    Its nonce is spent, except in routes that spend it in the transaction of its effect.
    """

    by: SignedBy
    key: KnownKey
    body: bytes
    idempotency_key: str | None


@dataclass(frozen=True, slots=True)
class SignedUpload:
    """A client's request whose signature verified, with the signed body.

    The body is sealed on disk (`Spool`) until the request is answered.
    """

    by: SignedBy
    body: Spool
    idempotency_key: str | None


async def signed_upload(
    request: Request, services: ServicesDep, _: Annotated[None, Security(SIGNATURE)]
) -> AsyncIterator[SignedUpload]:
    """Verify a client's signature as `signed_by` does, and read the body to a sealed file.

    The body is used only once all of it has arrived and matches the signed digest.
    """
    idempotency_key = _idempotency_key(request)
    signed, _key = await _verify(request, services)
    await run_in_threadpool(_spend, request, services, signed, "client")
    request.state.account.prove()
    arriving, body = ArrivingBody(request.headers), Spool(services.settings.data_dir)
    with closing(body):
        async for part in request.stream():
            arriving.update(part)
            await feed(body, part)
        arriving.check()
        yield SignedUpload(signed, body, _scoped(idempotency_key, signed.covered))


def signed_by(role: Role) -> Callable[..., Awaitable[SignedCall]]:
    """Return a dependency that demands the signature of a key of `role`."""

    async def check(
        request: Request, services: ServicesDep, _: Annotated[None, Security(SIGNATURE)]
    ) -> SignedCall:
        """Verify the RFC 9421 signature over this request, and only then read its body.

        The signature covers the body through its digest, so it can be checked before the body
        is read: without a key of the role, nobody can make the service store a body. The nonce
        is spent first, or an eavesdropper could send a refused call again.
        """
        idempotency_key = _idempotency_key(request)
        signed, key = await _verify(request, services)
        await run_in_threadpool(_spend, request, services, signed, role)
        return await _read(request, signed, key, idempotency_key)

    return check


@asynccontextmanager
async def signed_submission(request: Request, services: Services) -> AsyncIterator[SignedCall]:
    """Verify the signature of a call whose nonce is spent in the transaction of its effect.

    Not a dependency: FastAPI takes longer to resolve those than the signature takes to verify.
    Its route declares SIGNATURE.

    If it is refused, its nonce is spent here at the latest, so an eavesdropper cannot send it
    again. If the service itself failed, the sender may.
    """
    idempotency_key = _idempotency_key(request)
    signed, key = await _verify(request, services)
    with _counted(request, signed), services.nonces.in_use(signed):
        try:
            check_role(key.role, "requester")
            call = await _read(request, signed, key, idempotency_key)
        except (LetheError, ClientDisconnect):
            await run_in_threadpool(services.nonces.spend, signed)
            raise
        try:
            yield call
        except (LetheError, RequestValidationError) as error:
            if not isinstance(error, LetheError) or error.status < 500:
                await run_in_threadpool(services.nonces.note, signed)
            raise


@contextmanager
def _counted(request: Request, signed: SignedBy) -> Iterator[None]:
    """Count the call of the block, unless its nonce was spent before.

    A call that is refused here may be sent again unchanged. Raises RateLimitError.
    """
    rates, caller = _rates(request), f"key {signed.keyid}"
    note_counted(request.scope, caller)
    rates.check(caller)
    try:
        yield
    except SignatureReplayedError:
        # Who repeats a call that they saw is not told how often its sender calls.
        note_counted(request.scope, None)
        raise
    except BaseException:
        rates.count(caller)
        raise
    rates.count(caller)


async def _read(
    request: Request, signed: SignedBy, key: KnownKey, idempotency_key: str | None
) -> SignedCall:
    request.state.account.prove()
    body = await request.body()
    check_body(request.headers, body)
    return SignedCall(signed, key, body, _scoped(idempotency_key, signed.covered))


async def _verify(request: Request, services: Services) -> tuple[SignedBy, KnownKey]:
    """Verify the head with a key in memory or else, in a thread, with the key's row.

    The caller checks the key's role, once the nonce cannot be used again.
    """
    used: list[KnownKey] = []

    def verify(resolve: Callable[[str], KnownKey]) -> SignedBy:
        def note(keyid: str) -> tuple[PublicKey, Algorithm]:
            used[:] = [resolve(keyid)]
            return used[0].public, used[0].algorithm

        return verify_head(
            request.method,
            target_uri(request, services.settings.public_url),
            request.headers,
            note,
            now=datetime.now(UTC),
            has_body=announces_body(request.scope),
        )

    def verify_by_row() -> SignedBy:
        with services.reading() as session:
            return verify(lambda keyid: services.keys.read(session, keyid))

    try:
        signed = verify(services.keys.known)
    except (KeyUnknownError, SignatureInvalidError):  # not read yet, or replaced since
        signed = await run_in_threadpool(verify_by_row)
    return signed, used[0]


async def withdrawer(
    request: Request,
    services: ServicesDep,
    signature: Annotated[None, Security(SIGNATURE)],
    bearer: Annotated[None, Security(BEARER)],
    authorization: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> SignedCall | BearerToken:
    """Return who withdraws: an officer or operator by token, or the signer (`signed_by`)."""
    if "signature" in request.headers or authorization is None:
        return await _requester(request, services, signature)

    return await _authorise(request, services, authorization, DECIDING)


def _spend(request: Request, services: Services, signed: SignedBy, role: Role) -> None:
    services.nonces.spend(signed)
    count_call(request, f"key {signed.keyid}")
    with services.reading() as session:
        current_key(session, signed, role)


_requester = signed_by("requester")
SignedByRequester = Annotated[SignedCall, Depends(_requester)]
Withdrawer = Annotated[SignedCall | BearerToken, Depends(withdrawer)]
SignedByClient = Annotated[SignedCall, Depends(signed_by("client"))]
UploadByClient = Annotated[SignedUpload, Depends(signed_upload)]


def _idempotency_key(request: Request) -> str | None:
    sent = request.headers.getlist("idempotency-key")
    if not sent:
        return None
    key = sent[0]
    empty = not key.strip('"')  # the value may be a structured-field string, quotes and all
    if (
        len(sent) > 1
        or empty
        or len(key) > MAX_IDEMPOTENCY_KEY
        or not (key.isascii() and key.isprintable())
    ):
        raise IdempotencyKeyError(
            f"send one Idempotency-Key of 1 to {MAX_IDEMPOTENCY_KEY} printable ASCII characters"
        )
    return key


def _scoped(key: str | None, covered: frozenset[str]) -> str | None:
    # An intermediary may have added a key that the signature does not cover. It is honoured,
    # but never equals one that the signer chose: no printable key begins with this mark.
    return key if key is None or "idempotency-key" in covered else f"{UNCOVERED}{key}"


def target_uri(request: Request, public_url: str) -> str:
    """Return the URI that the client signed.

    Behind a proxy the request's host and scheme are the proxy's, so the configured public URL
    replaces them; the path keeps the spelling in which it was sent. Production requires the
    URL: a Host header is whatever its sender wants it to be.
    """
    raw = request.scope.get("raw_path") or request.url.path.encode()
    path = raw.decode("ascii", "replace").partition("?")[0]
    query = request.scope["query_string"].decode("ascii", "replace")
    base = public_url.rstrip("/") or f"{request.url.scheme}://{request.url.netloc}"
    return f"{base}{path}?{query}" if query else f"{base}{path}"


After = Annotated[str | None, Query(max_length=400, description="cursor: `next` of a page")]
Limit = Annotated[int, Query(ge=1, le=1000, description="items a page")]
