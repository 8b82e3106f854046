"""JSON bodies that the framework parses, refused if an object has a name twice."""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from lethe import canonical


class _StrictRequest(Request):
    async def json(self) -> Any:
        """Return the body. Raises JSONDecodeError, which is answered as any other body's."""
        body = await self.body()
        try:
            return canonical.loads(body)
        except canonical.DuplicateKeyError as error:
            raise json.JSONDecodeError(str(error), "", 0) from None


class StrictRoute(APIRoute):
    """A route whose JSON body has one meaning."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which is given the strict reader of the request."""
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strictly


class BareRoute(APIRoute):
    """A route whose endpoint takes the request alone and returns the response.

    FastAPI looks for parameters and a body to parse in each call, which costs more than to
    verify the signature. OpenAPI describes the route as any other.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the endpoint."""
        endpoint: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return endpoint
