"""Sign in with a bearer token, sign out, choose the language; the files of all pages."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from app.api.http.attempts import minutes
from app.api.http.deps import ServicesDep, get_services
from app.api.http.pages import static_file
from app.console import session as sessions
from app.console.forms import Posted
from app.console.render import LANGUAGE_COOKIE, redirect, render
from app.console.route import own_page, router
from app.console.session import SignedIn, counted
from app.counters import REFUSED
from app.problems import AttemptsError, NotFoundError, UnauthorizedError
from app.service.access import keys
from app.service.access.roles import ROLES
from lethe.words.texts import LANGUAGES

routes = router()
home = APIRouter(include_in_schema=False)
STATIC = {
    "console.css": "text/css; charset=utf-8",
    "proof.mjs": "text/javascript; charset=utf-8",
    "range.mjs": "text/javascript; charset=utf-8",
    "htmx.min.js": "text/javascript; charset=utf-8",
    "htmx.LICENSE.txt": "text/plain; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
YEAR_S = 365 * 24 * 3600


@home.get("/", operation_id="consoleHome")
def start(request: Request) -> Response:
    """Send people to the console."""
    return RedirectResponse(f"{request.scope.get('root_path', '')}/console", 307)


@routes.get("/sign-in", operation_id="consoleSignInPage")
def sign_in_page(
    request: Request, following: Annotated[str, Query(alias="next", max_length=300)] = ""
) -> Response:
    """Ask for a token."""
    return _ask(request, own_page(following))


@routes.post("/sign-in", operation_id="consoleSignIn")
def sign_in(request: Request, services: ServicesDep, form: Posted) -> Response:
    """Begin a session for the holder of a token; after a wrong one, show the page again."""
    following = own_page(form.get("next", ""))
    try:
        with counted(request, UnauthorizedError), services.reading() as session:
            row = keys.authorise(session, f"Bearer {form.get('token', '')}", ROLES)
    except UnauthorizedError as error:
        REFUSED.add(error.slug)
        return _ask(request, following, error.status, "refused")
    except AttemptsError as error:
        REFUSED.add(error.slug)
        response = _ask(request, following, error.status, "too_many", minutes(error))
        response.headers["retry-after"] = str(error.wait)
        return response
    response = redirect(request, following)
    visitor = sessions.begin(row.name, row.scope, row.digest)
    sessions.write_cookie(services, response, visitor)
    return response


def _ask(
    request: Request, following: str, status: int = 200, error: str | None = None, wait: int = 0
) -> Response:
    oidc = bool(get_services(request).settings.oidc_issuer)
    said = {"following": following, "error": error, "wait": wait, "oidc": oidc}
    return render(request, "sign_in.html", status, **said)


@routes.post("/sign-out", operation_id="consoleSignOut")
def sign_out(request: Request, services: ServicesDep, visitor: SignedIn, _: Posted) -> Response:
    """End the session, in this browser and for copies of its cookie."""
    sessions.end(services, visitor)
    response = redirect(request, "/console/sign-in")
    sessions.set_cookie(services, response, sessions.cookie_name(services), "", max_age=0)
    return response


@routes.post("/language", operation_id="consoleLanguage")
def language(request: Request, services: ServicesDep, form: Posted) -> Response:
    """Keep the chosen language in a cookie of this browser."""
    chosen = form.get("language", "")
    response = redirect(request, own_page(form.get("next", "")))
    if chosen in LANGUAGES:
        sessions.set_cookie(services, response, LANGUAGE_COOKIE, chosen, max_age=YEAR_S)
    return response


@routes.get("/static/{name}", operation_id="consoleFile")
def static(name: str) -> Response:
    """Return a style sheet, a script, or a licence.

    Raises NotFoundError if there is no such file.
    """
    if name not in STATIC:
        raise NotFoundError("the console has no such file")
    return static_file("app.console", name, STATIC[name])
