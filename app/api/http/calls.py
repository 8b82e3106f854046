"""ASGI middleware: the id of each call, how long it took, and a line about it in the log."""

import logging
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import logs
from app.counters import CALLS

log = logging.getLogger(__name__)

HEADER = b"x-request-id"
UNKNOWN = "none"  # the operation of a call that no route takes


class Calls:
    """Gives a call its id (`app.logs`), answers it in X-Request-Id, and counts the call.

    The path is neither logged nor counted: it holds ids that are capabilities. The operation
    is the route's name in OpenAPI.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the call on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = [value for name, value in scope["headers"] if name == HEADER]
        identity = logs.accept_call_id(sent[0].decode("latin-1") if len(sent) == 1 else None)
        status = 0

        async def identified(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (HEADER, identity.encode())]
            await send(message)

        begun = perf_counter()
        with logs.for_call(identity):
            try:
                await self._app(scope, receive, identified)
            finally:
                took = perf_counter() - begun
                operation = getattr(scope.get("route"), "operation_id", None) or UNKNOWN
                CALLS.observe(took, operation)
                log.info("%s answered %d in %.1f ms", operation, status, 1000 * took)
