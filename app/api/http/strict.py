"""Routes with a JSON body: read for known senders only, and without duplicate names.

FastAPI reads and parses a declared body on the event loop before any dependency checks the
token: 100 bodies of 1 MiB without a token kept all other calls waiting for 20 s.
"""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import HTTPException
from fastapi.routing import APIRoute

from app.api.http.limits import announces_body
from app.api.http.parsing import get_parsing
from app.problems import BusyError
from app.service.access.keys import refuse_unknown
from lethe import canonical


class _StrictRequest(Request):
    busy: BusyError | None = None

    async def json(self) -> Any:
        """Return the body. Raises JSONDecodeError, also for a duplicate name."""
        body = await self.body()
        try:
            return await get_parsing(self).parse_body(body, canonical.loads)
        except canonical.DuplicateKeyError as error:
            raise json.JSONDecodeError(str(error), "", 0) from None
        except BusyError as error:
            self.busy = error
            # Any other error becomes a 400 in FastAPI.
            raise HTTPException(error.status) from None


class StrictRoute(APIRoute):
    """A route for holders of a token: its JSON body has no duplicate name.

    A call without a known token is refused before its body is read. Its dependencies check the
    token's scope.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which gets a strict request."""
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            if self.body_field is not None and announces_body(request.scope):
                _check_known(request)
            strict = _StrictRequest(request.scope, request.receive)
            try:
                return await handle(strict)
            except HTTPException:
                if strict.busy is not None:
                    raise strict.busy from None
                raise

        return strictly


def _check_known(request: Request) -> None:
    """Raise UnauthorizedError if `BodyLimit` did not find the token of a call."""
    if not request.state.account.proved:
        refuse_unknown(request.headers.get("authorization"))


class BareRoute(APIRoute):
    """A route whose endpoint takes the request alone and returns the response.

    In each call FastAPI resolves parameters and a body, which costs more than verifying the
    signature. OpenAPI describes the route like any other.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the endpoint."""
        endpoint: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return endpoint
