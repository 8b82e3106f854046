"""Routes that answer errors with pages in plain words, and limits on the use of the page."""

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from app.api.http.attempts import Bound, minutes
from app.counters import REFUSED
from app.intake.render import HEADERS, language_of, render, words
from app.problems import AttemptsError
from lethe.errors import LetheError

log = logging.getLogger(__name__)


class IntakeRoute(APIRoute):
    """A route of the page."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which answers errors with a page."""
        handle = super().get_route_handler()

        async def page(request: Request) -> Response:
            try:
                response = await handle(request)
            except LetheError as error:
                response = await run_in_threadpool(refusal, request, error)
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return page


def refusal(request: Request, error: LetheError) -> Response:
    """Return an error as a page; the operator's log gets the slug and no personal data."""
    REFUSED.add(error.slug)
    if error.status >= 500:
        cause = error.__cause__
        slug = cause.slug if isinstance(cause, LetheError) else error.slug
        log.warning("the intake page could not answer: %s", slug)
    texts = words(language_of(request)).sections["errors"]
    title, text, *several = texts.get(error.slug, texts["other"])
    if isinstance(error, IntakeLimitError):
        wait = minutes(error)
        text = (text if wait == 1 else several[0]).format(wait=wait)
    response = render(request, "problem.html", error.status, heading=title, text=text)
    if error.retry_after is not None:
        response.headers["retry-after"] = str(error.retry_after)
    return response


def router() -> APIRouter:
    """Return a router of pages."""
    return APIRouter(prefix="/intake", include_in_schema=False, route_class=IntakeRoute)


class IntakeLimitError(AttemptsError):
    """Too many calls of the intake page."""

    slug = "intake-limit"


BY_CLIENT = Bound("client", 10)  # requested codes
BY_IDENTITY = Bound("identity", 3, kept=True)
TRIES = Bound("tries", 5, 900.0)  # of one challenge
CODES = Bound("codes", 60)  # wrong codes, of challenges and cases, by client
