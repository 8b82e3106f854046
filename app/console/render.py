"""Pages: templates, the texts of the reader's language, and the headers of every page."""

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.datastructures import MutableHeaders

from app.api.http import pages
from app.api.http.deps import get_services
from app.console import forms
from app.console.session import Visitor, visitor_of
from lethe.words.texts import LANGUAGES, Language, Texts, accepted
from lethe.words.texts import texts as shared_texts

if TYPE_CHECKING:
    from jinja2 import Environment

LANGUAGE_COOKIE = "lethe-language"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {"content-security-policy": POLICY, **pages.HEADERS}


@cache
def words(language: Language) -> Texts:
    """Return the console's texts in a language."""
    return Texts(language, "app.console.words")


def language_of(request: Request) -> Language:
    """Return the chosen language, or else the browser's."""
    chosen = request.cookies.get(LANGUAGE_COOKIE, "")
    named = next((one for one in LANGUAGES if one == chosen), None)
    return named or accepted(request.headers.get("accept-language"))


@cache
def _environment() -> "Environment":
    made = pages.environment("app.console")
    made.filters["time"] = lambda at: at.strftime("%Y-%m-%d %H:%M UTC")
    made.filters["day"] = lambda at: at.strftime("%Y-%m-%d UTC")
    made.filters["iso"] = lambda at: at.strftime("%Y-%m-%dT%H:%M:%SZ")
    made.globals["back_to"] = _back_to
    # A decision's details for auditors: notes are for those who decide.
    made.globals["without_note"] = lambda detail: {
        k: v for k, v in detail.items() if k != "note"
    }
    return made


def _back_to(address: str) -> str:
    """Return the page to go back to: the case of a decision, else the console's start."""
    parts = address.split("/")
    return "/".join(parts[:4]) if len(parts) > 3 and parts[2] == "cases" else "/console"


def render(request: Request, template: str, /, status: int = 200, **values: Any) -> Response:
    """Return a page. Without a session its forms are bound to a cookie, which it sets."""
    services = get_services(request)
    visitor: Visitor | None = getattr(request.state, "visitor", None)
    visitor = visitor or visitor_of(services, request)
    start = "" if visitor else forms.start_of(services, request)
    session = visitor.session if visitor else forms.before(start)
    texts = words(language_of(request))
    root = request.scope.get("root_path", "")
    page = _environment().get_template(template)
    text = page.render(
        root=root,
        base=f"{root}/console",
        address=request.url.path.removeprefix(root),
        t=texts.of,
        n=texts.count,
        said=partial(_said, texts),
        language=texts.language,
        languages=LANGUAGES,
        visitor=visitor,
        form_token=partial(forms.token, services, session),
        **values,
    )
    response = HTMLResponse(text, status)
    if visitor is None:
        forms.send_start(services, response, start)
    return response


def _said(texts: Texts, section: str, name: str) -> str:
    """Return the text of a name, or the name itself if there is none.

    Sections that mail has, too, are in lethe.words.
    """
    own = texts if section in texts.sections else shared_texts(texts.language)
    return str(own.sections[section].get(name, name))


def secure(headers: MutableHeaders) -> None:
    """Add the headers of every page, unless a response has its own."""
    for name, value in HEADERS.items():
        headers.setdefault(name, value)


def redirect(request: Request, address: str) -> Response:
    """Send the browser to a page of the console by a GET. address: without the root path."""
    return RedirectResponse(f"{request.scope.get('root_path', '')}{address}", 303)
