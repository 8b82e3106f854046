"""Control characters in a path or query are refused before anything looks them up.

PostgreSQL cannot store or compare a NUL and says so with an error; and a name that is shown
in two ways, or in none, is no name.
"""

from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.problems import problem
from app.service.problems import BadCursorError


class PlainTargets:
    """ASGI middleware: answers 400 to a target with an encoded control character."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 400."""
        if scope["type"] == "http" and _holds_control(scope):
            error = BadCursorError
            detail = "the path or query holds a control character: remove it"
            response = problem(error.status, error.slug, error.title, detail)
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _holds_control(scope: Scope) -> bool:
    # The server decoded the path once, routing sees that; the query is decoded later.
    decoded = scope["path"].encode("utf-8", "surrogatepass")
    decoded += unquote_to_bytes(scope["query_string"])
    return any(byte < 0x20 or byte == 0x7F for byte in decoded)
