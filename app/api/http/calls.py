"""ASGI middleware: the id of each call, how long it took, and a line about it in the log."""

import logging
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import logs, traces
from app.api.http.rates import fields_of
from app.counters import CALLS
from app.ledger.authority import own_authority
from app.traces import TraceSpan

log = logging.getLogger(__name__)

HEADER = b"x-request-id"
PARENT = b"traceparent"  # W3C Trace Context; read where traces are on
# An answer may show a scope, a contact or a person's records, whose retention ends. An answer
# without the header may be kept (RFC 9111, section 3): routes for which that is right set it.
UNKEPT = (b"cache-control", b"no-store")
UNKNOWN = "none"  # the operation of a call without a route


class Calls:
    """Gives a call its id (`app.logs`), answers it in X-Request-Id, and counts the call.

    The answer also says what is left of its caller's rate (`app.api.http.rates`), and that no
    cache may keep it, unless its route says otherwise (`app.api.http.immutable`).

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
        sent, parent = _header(scope, HEADER), _header(scope, PARENT)
        if sent is not None:  # the trace takes this id, not the caller's trace id
            parent = None
        identity = logs.accept_call_id(sent or traces.caller_id(parent))
        status = 0

        async def identified(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = [(HEADER, identity.encode()), *fields_of(scope)]
                if all(name != UNKEPT[0] for name, _ in message["headers"]):
                    own.append(UNKEPT)
                message["headers"] = [*message["headers"], *own]
            await send(message)

        begun = perf_counter()
        trace = traces.call(scope["method"], parent)
        with own_authority(), logs.for_call(identity), trace as span:
            try:
                await self._app(scope, receive, identified)
            finally:
                took = perf_counter() - begun
                operation = getattr(scope.get("route"), "operation_id", None) or UNKNOWN
                CALLS.observe(took, operation)
                _describe(span, scope, operation, status)
                log.info("%s answered %d in %.1f ms", operation, status, 1000 * took)


def _header(scope: Scope, wanted: bytes) -> str | None:
    """Return a header that was sent once."""
    sent = [value for name, value in scope["headers"] if name == wanted]
    return sent[0].decode("latin-1") if len(sent) == 1 else None


def _describe(span: TraceSpan, scope: Scope, operation: str, status: int) -> None:
    """Name a call's span by its route's template: the path holds ids that are capabilities."""
    span.set("lethe.operation", operation)
    template = getattr(scope.get("route"), "path", None)
    if template is not None:
        span.set("http.route", template)
        # The method may be one that the route does not accept.
        span.rename(f"{traces.known_method(scope['method'])} {template}")
    if status:
        span.set("http.response.status_code", status)
    if status >= 500:
        span.fail(str(status))
