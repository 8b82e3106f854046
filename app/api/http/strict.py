"""Makes the framework refuse JSON bodies in which an object has a name twice."""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from lethe import canonical


class _StrictRequest(Request):
    async def json(self) -> Any:
        """Return the body. Raises JSONDecodeError, also for a duplicate name."""
        body = await self.body()
        try:
            return canonical.loads(body)
        except canonical.DuplicateKeyError as error:
            raise json.JSONDecodeError(str(error), "", 0) from None


class StrictRoute(APIRoute):
    """A route that refuses JSON bodies with a duplicate name."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which gets a strict request."""
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strictly


class BareRoute(APIRoute):
    """A route whose endpoint takes the request alone and returns the response.

    In each call FastAPI resolves parameters and a body, which costs more than verifying the
    signature. OpenAPI describes the route like any other.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the endpoint."""
        endpoint: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return endpoint
