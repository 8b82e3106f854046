"""Pages of the intake: templates, texts of the reader's language, headers of every page."""

from datetime import datetime
from functools import cache, partial
from typing import Any

from fastapi import Request, Response
from fastapi.responses import HTMLResponse

from app.api.http import pages
from app.api.http.deps import get_services
from app.intake import forms
from app.service.deadlines import zone_of
from lethe.words.texts import LANGUAGES, Language, Texts, accepted, day_in

NAMES = {"en": "English", "de": "Deutsch", "fr": "Français"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {"content-security-policy": POLICY, **pages.HEADERS}


@cache
def words(language: Language) -> Texts:
    """Return the texts of a language."""
    return Texts(language, "app.intake.words")


def chosen(text: str | None) -> Language | None:
    """Return the language of this name, None for any other text."""
    return next((one for one in LANGUAGES if one == text), None)


def language_of(request: Request) -> Language:
    """Return the language of the form or the address, or else the browser's."""
    named: Language | None = getattr(request.state, "language", None)
    named = named or chosen(request.query_params.get("language"))
    return named or accepted(request.headers.get("accept-language"))


_environment = cache(partial(pages.environment, "app.intake"))


def render(request: Request, template: str, /, status: int = 200, **values: Any) -> Response:
    """Return a page; its forms are bound to the cookie of the browser, which it sets."""
    services = get_services(request)
    session, fresh = forms.begin(request, services)
    texts = words(language_of(request))
    zone = zone_of(services.settings)

    def day(at: datetime) -> str:
        return day_in(texts.language, at.astimezone(zone).date())

    def said(section: str, name: str) -> str:
        return str(texts.sections[section].get(name, ""))

    root = request.scope.get("root_path", "")
    text = (
        _environment()
        .get_template(template)
        .render(
            base=f"{root}/intake",
            root=root,
            t=texts.of,
            n=texts.count,
            said=said,
            day=day,
            w=texts.sections,
            language=texts.language,
            languages=NAMES,
            form_token=lambda: forms.form_token(services, session),
            **values,
        )
    )
    response = HTMLResponse(text, status)
    if fresh is not None:
        forms.set_cookie(response, request, services, fresh)
    return response
