"""Forms: limited in size, accepted only from this site, and only once.

A form carries a MAC over the session, its target address, a nonce and its expiry. A form of
another session, address or site is refused, and so is one that was sent before.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hmac import compare_digest, digest
from secrets import token_urlsafe
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from app.api.http import pages
from app.api.http.deps import ServicesDep
from app.console.session import cookie_name, set_cookie, spendable, visitor_of
from app.problems import FormRefusedError
from app.service.context import Services
from lethe import canonical
from lethe.signing.errors import SignatureReplayedError

FIELD = "form_token"
LIFE = timedelta(hours=10)
MOST_BYTES, MOST_FIELDS = 65_536, 100
START = "start:"  # prefix of the binding of forms before sign-in
SPENT = "/console/form"  # as a keyid, which never has a slash
OWN_SITES = ("same-origin", "none")


def start_name(services: Services) -> str:
    """Return the name of the cookie of visitors who have not signed in."""
    return cookie_name(services).replace("console", "start")


def token(services: Services, session: str, address: str) -> str:
    """Return the token of a form for a target address (path without the root path)."""
    expires = int((datetime.now(UTC) + LIFE).timestamp())
    nonce = token_urlsafe(16)
    return f"{expires}.{nonce}.{_mac(services, session, address, nonce, expires)}"


def _mac(services: Services, session: str, address: str, nonce: str, expires: int) -> str:
    said = canonical.encode([session, address, nonce, str(expires)])
    return digest(services.root_secret.derive("console/forms"), said, "sha256").hex()


async def posted(request: Request, services: ServicesDep) -> Mapping[str, str]:
    """Return the fields of a form from a page of this session, which is accepted once.

    Raises BodyTooLargeError: more than MOST_BYTES, or than MOST_FIELDS fields;
    FormRefusedError: from another site, of another session or address, too old, sent before,
    not URL-encoded, or with a field twice.
    """
    _check_site(request, services)
    if not pages.is_form(request):
        raise FormRefusedError(
            "the form must be sent as application/x-www-form-urlencoded: use the page itself"
        )
    body = await pages.read_form(request, MOST_BYTES)
    malformed = "the form is not URL-encoded UTF-8 of at most 100 fields"
    twice = "the form has a field twice"
    fields = pages.parse_form(body, MOST_FIELDS, FormRefusedError, malformed, twice)
    fields = {name: value.strip() for name, value in fields.items()}
    await run_in_threadpool(_spend, services, request, fields.pop(FIELD, ""))
    return fields


Posted = Annotated[Mapping[str, str], Depends(posted)]


def _check_site(request: Request, services: Services) -> None:
    """Refuse a form from another site: browsers send its origin."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    public = services.settings.public_url
    at = urlsplit(public or str(request.base_url))
    own = f"{at.scheme}://{at.netloc}".lower()
    foreign = origin is not None and origin.lower() != own
    if site not in OWN_SITES or foreign:
        raise FormRefusedError(
            "the form was sent from another site than the console's own address"
            + (", which is LETHE_PUBLIC_URL" if public else "")
        )


def session_of(services: Services, request: Request) -> str:
    """Return the binding of this browser's forms: its session, or the cookie before sign-in."""
    visitor = visitor_of(services, request)
    if visitor is not None:
        return visitor.session
    kept = request.cookies.get(start_name(services), "")
    return kept and before(kept)


def before(start: str) -> str:
    """Return the binding of forms before sign-in, which differs from every session's id."""
    return f"{START}{start}"


def _spend(services: Services, request: Request, sent: str) -> None:
    expires, _, rest = sent.partition(".")
    nonce, _, mac = rest.partition(".")
    session = session_of(services, request)
    address = request.url.path.removeprefix(request.scope.get("root_path", ""))
    is_number = expires.isascii() and expires.isdigit() and len(expires) < 12
    good = session and is_number
    expected = _mac(services, session, address, nonce, int(expires) if is_number else 0)
    if not good or not compare_digest(mac.encode(), expected.encode()):
        raise FormRefusedError(
            "the form is not of this session: reload the page, sign in and send it again"
        )
    until = datetime.fromtimestamp(int(expires), UTC)
    if until < datetime.now(UTC):
        raise FormRefusedError("the form is too old: reload the page and send it again")
    if session.startswith(START):
        # Signing in and choosing a language may be repeated, and strangers must make no rows.
        return
    try:
        services.nonces.spend(spendable(SPENT, nonce, until))
    except SignatureReplayedError:
        raise FormRefusedError(
            "this form was sent before, and nothing was done again: reload the page"
        ) from None


def start_of(services: Services, request: Request) -> str:
    """Return the cookie's value for forms before sign-in, a new one if there is none."""
    kept = request.cookies.get(start_name(services), "")
    return kept if 16 <= len(kept) <= 64 else token_urlsafe(16)


def send_start(services: Services, response: Response, start: str) -> None:
    """Send the cookie that forms before sign-in are bound to."""
    set_cookie(services, response, start_name(services), start)
