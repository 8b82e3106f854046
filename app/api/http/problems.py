"""Every error as RFC 9457 problem+json, without any of the sender's input."""

import logging
from collections.abc import Sequence
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.counters import REFUSED
from app.logs import place_of
from app.problems import DatabaseUnavailableError
from app.schemas.base import Wire
from lethe.canonical import DUPLICATE
from lethe.errors import LetheError
from models.database.session import unavailable

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 5  # a server restarts in less, and a client tries five times
PARAMETERS = ("query", "path", "header")
UNKNOWN = "(unknown field)"
MOST_LETTERS = 40  # of a name that is compared with all fields' names
MOST_PLACES = 50  # in an answer: each takes a millisecond, and a body can be wrong in 350,000


def problem(
    status: int, slug: str, title: str, detail: str, members: dict[str, Any] | None = None
) -> JSONResponse:
    """Return a problem document, and count its type."""
    REFUSED.add(slug)
    body = {
        "type": f"urn:lethe:problem:{slug}",
        "title": title,
        "status": status,
        "detail": detail,
        **(members or {}),
    }
    headers = {"www-authenticate": "Bearer"} if slug == "token-invalid" else {}
    if status == 503:
        headers["retry-after"] = str(RETRY_AFTER_S)
    return JSONResponse(body, status, headers=headers, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer every error of `app` with a problem document."""
    app.add_exception_handler(LetheError, _lethe)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)
    app.add_middleware(Unexpected)


async def _lethe(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, LetheError)
    return answer(error)


def answer(error: LetheError) -> JSONResponse:
    """Return the problem document of an error."""
    members = {name: value for name, value in error.members.items() if value is not None}
    response = problem(error.status, error.slug, error.title, error.detail, members)
    if error.retry_after is not None:
        response.headers["retry-after"] = str(error.retry_after)
    return response


async def _validation(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return invalid(error.errors())


def invalid(errors: Sequence[Any]) -> JSONResponse:
    """Return the 422 for pydantic's errors, without the input values.

    pydantic's own report repeats the input, such as an e-mail address. A place is named only as
    far as the schema knows it: the name of an unknown field is also the sender's text.
    """
    places = [
        {"place": ".".join(_place(error)), "problem": _known_message(error)}
        for error in errors[:MOST_PLACES]
    ]
    more = f", the first {MOST_PLACES} of {len(errors)}" if len(errors) > MOST_PLACES else ""
    return problem(
        422,
        "body-invalid",
        "Invalid request",
        f"the request does not have the documented shape: see `errors`{more}",
        {"errors": places},
    )


def _place(error: dict[str, Any]) -> list[str]:
    place: tuple[str | int, ...] = error["loc"] or ("body",)
    if error["type"] == "extra_forbidden":
        place = (*place[:-1], UNKNOWN)
    part, *parts = place
    if part in PARAMETERS:  # named by the route, never by the sender
        return [part, *map(str, parts)]
    # An integer is a position in a list. A string may be the key of an object that takes
    # any key, which is then the sender's text.
    known = {"body", UNKNOWN} | _field_names(Wire)
    return [
        str(name) if isinstance(name, int) or name in known else "(key)"
        for name in (part, *parts)
    ]


def _field_names(wire: type[Wire]) -> set[str]:
    names = set(wire.model_fields)
    return names.union(*(_field_names(narrower) for narrower in wire.__subclasses__()))


def _known_message(error: dict[str, Any]) -> str:
    # The messages of these errors repeat the sender's text.
    if error["type"] in ("json_invalid", "value_error.jsondecode"):
        # The framework reports duplicates here, pydantic in its message.
        twice = error.get("ctx", {}).get("error") == DUPLICATE
        return DUPLICATE if twice else "not valid JSON"
    if error["type"] == "extra_forbidden":
        sent = str(error["loc"][-1])[:MOST_LETTERS]
        near = get_close_matches(sent, sorted(_field_names(Wire)), 1, 0.75)
        return f"{error['msg']}: {f'write {near[0]}, or ' if near else ''}leave it out"
    return str(error["msg"])


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    title = HTTPStatus(error.status_code).phrase
    slug = title.lower().replace(" ", "-")
    response = problem(error.status_code, slug, title, "see the API's documentation at /docs")
    response.headers.update(error.headers or {})
    return response


class Unexpected:
    """ASGI middleware: answers every unexpected exception with a problem document.

    An exception's text may hold a row's values, and the server would print it with the
    traceback. So only type and place are logged, which are enough to find the cause.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 500."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            log.error(
                "unexpected %s at %s", type(error).__name__, place_of(error.__traceback__)
            )
            if not started:  # otherwise the server cuts the answer short
                if unavailable(error):
                    response = answer(DatabaseUnavailableError(AWAY))
                else:
                    response = problem(500, "internal", "Internal error", INTERNAL)
                await response(scope, receive, send)


# Neither says that nothing was stored: the error may have come after the commit.
AGAIN = (
    "the call may have been carried out: send it again, with the same Idempotency-Key if it "
    "had one, which does nothing twice"
)
AWAY = f"the database does not answer, or not in time; {AGAIN}"
INTERNAL = f"Something went wrong; {AGAIN}"
