"""Routes of pages: problems as pages, and the headers of every page."""

import re
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from app.api.http.deps import get_services
from app.console.render import redirect, render, secure
from app.console.session import Visitor, renew
from app.counters import REFUSED
from app.problems import BadCursorError, UnauthorizedError
from lethe.errors import LetheError

SIGN_IN = "/console/sign-in"
_OWN_PAGE = re.compile(r"/console(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")  # and no /../


class PageRoute(APIRoute):
    """A route of the console."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which answers errors with a page."""
        handle = super().get_route_handler()

        async def page(request: Request) -> Response:
            try:
                response = await handle(request)
            except LetheError as error:
                response = await run_in_threadpool(_refused, request, error)
            except RequestValidationError:
                wrong = BadCursorError("an address or field is not as the pages write it")
                response = await run_in_threadpool(_refused, request, wrong)
            visitor: Visitor | None = getattr(request.state, "visitor", None)
            if visitor is not None and "set-cookie" not in response.headers:
                renew(get_services(request), response, visitor)
            secure(response.headers)
            return response

        return page


def _refused(request: Request, error: LetheError) -> Response:
    REFUSED.add(error.slug)
    if isinstance(error, UnauthorizedError) and request.url.path != SIGN_IN:
        return redirect(request, f"{SIGN_IN}?next={quote(own_page(request.url.path))}")
    response = render(request, "problem.html", error.status, error=error)
    if error.retry_after is not None:
        response.headers["retry-after"] = str(error.retry_after)
    return response


def own_page(address: str) -> str:
    """Return an address if it is one of the console's pages, else the console's start."""
    return address if _OWN_PAGE.fullmatch(address) else "/console"


def router() -> APIRouter:
    """Return a router of pages."""
    return APIRouter(prefix="/console", include_in_schema=False, route_class=PageRoute)
