"""Forms of the page: small, and accepted only from this site and the browser that got them.

A form's token is a MAC over the browser's cookie, a nonce and the expiry. The cookie is random
and reveals nothing about the person. The nonce of the first form becomes the reference of its
challenge, so that sending a form twice mails one code.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from hmac import compare_digest, digest
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request, Response

from app.api.http import pages
from app.api.http.deps import ServicesDep
from app.service.context import Services
from lethe import canonical
from lethe.errors import LetheError

MOST_BYTES, MOST_FIELDS = 8192, 16
LIFE = timedelta(hours=12)
FIELD = "form"
COOKIE_BYTES = 32


class IntakeFormError(LetheError):
    """A form that this page did not give to this browser. Nothing was stored."""

    slug, title, status = "intake-form", "Form refused", 403


@dataclass(frozen=True, slots=True, repr=False)
class IntakeForm:
    """The fields of a form that was accepted. session: of the browser; nonce: of the form."""

    fields: Mapping[str, str]
    session: str
    nonce: str

    def of(self, name: str) -> str:
        """Return a field, empty if it was not sent."""
        return self.fields.get(name, "")


def address_of(request: Request, services: Services) -> str:
    """Return the public URL, or else the scheme and host of the call."""
    public = services.settings.public_url.rstrip("/")
    return public or f"{request.url.scheme}://{request.url.netloc}"


def _is_secure(request: Request, services: Services) -> bool:
    return address_of(request, services).startswith("https://")


def cookie_name(request: Request, services: Services) -> str:
    """Return the cookie's name; its prefix keeps other sites of the domain from setting it."""
    return "__Host-lethe-intake" if _is_secure(request, services) else "lethe-intake"


def session_of(request: Request, services: Services) -> str | None:
    """Return the binding of this browser's challenges and forms, None without a cookie."""
    sent = request.cookies.get(cookie_name(request, services), "")
    return sha256(sent.encode()).hexdigest() if len(sent) == 2 * COOKIE_BYTES else None


def begin(request: Request, services: Services) -> tuple[str, str | None]:
    """Return the session, and the cookie to set if the browser has none."""
    if (known := session_of(request, services)) is not None:
        return known, None
    fresh = secrets.token_hex(COOKIE_BYTES)
    return sha256(fresh.encode()).hexdigest(), fresh


def set_cookie(response: Response, request: Request, services: Services, value: str) -> None:
    """Give the browser its cookie, until it is closed."""
    response.set_cookie(
        cookie_name(request, services),
        value,
        path="/",
        secure=_is_secure(request, services),
        httponly=True,
        samesite="lax",  # strict would lose it when a link in a mail leads here
    )


def form_token(services: Services, session: str) -> str:
    """Return the token of a new form."""
    nonce = secrets.token_hex(16)
    expires = int((datetime.now(UTC) + LIFE).timestamp())
    return f"{expires}.{nonce}.{_mac(services, session, nonce, expires)}"


def _mac(services: Services, session: str, nonce: str, expires: int) -> str:
    said = canonical.encode([session, nonce, str(expires)])
    return digest(services.root_secret.derive("intake/form"), said, "sha256").hex()


async def posted(request: Request, services: ServicesDep) -> IntakeForm:
    """Return the fields of a form of this page.

    Raises BodyTooLargeError: more than MOST_BYTES; IntakeFormError: from another site or
    browser, too old, or malformed.
    """
    _check_site(request, services)
    if not pages.is_form(request):
        raise IntakeFormError(
            "the form must be sent as application/x-www-form-urlencoded: use the page itself"
        )
    body = await pages.read_form(request, MOST_BYTES)
    malformed = "the form cannot be read: use the page itself"
    twice = "the form has a field twice: use the page itself"
    fields = pages.parse_form(body, MOST_FIELDS, IntakeFormError, malformed, twice)
    session = session_of(request, services)
    expires, _, rest = fields.pop(FIELD, "").partition(".")
    nonce, _, mac = rest.partition(".")
    is_number = expires.isascii() and expires.isdigit() and len(expires) < 12
    if session is None or not is_number:
        raise IntakeFormError("the form was not loaded by this browser: load the page again")
    expected = _mac(services, session, nonce, int(expires))
    late = int(expires) < datetime.now(UTC).timestamp()
    if not compare_digest(mac.encode(), expected.encode()) or late:
        raise IntakeFormError(
            "the form was not loaded by this browser, or is too old: load it again"
        )
    return IntakeForm(fields, session, nonce)


Posted = Annotated[IntakeForm, Depends(posted)]


def _check_site(request: Request, services: Services) -> None:
    """Refuse forms from another site. Browsers send at least one of the two headers."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    own = urlsplit(address_of(request, services))
    foreign = origin is not None and origin != f"{own.scheme}://{own.netloc}"
    if foreign or (site is None and origin is None) or site not in (None, "same-origin"):
        raise IntakeFormError("the form was sent from another site: use the page itself")
