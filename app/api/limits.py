"""A body that is too large is refused before it is in memory."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.problems import problem
from app.service.problems import BodyTooLargeError

UPLOADS = ("/v1/models", "/v1/certificates/verify")  # and whatever lies below them


class _TooLargeError(Exception):
    pass


class BodyLimit:
    """ASGI middleware: counts what arrives, whatever Content-Length claimed."""

    def __init__(self, app: ASGIApp, *, body: int, upload: int) -> None:
        self._app, self._body, self._upload = app, body, upload

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 413."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._upload if scope["path"].startswith(UPLOADS) else self._body
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > limit:
            await self._refuse(limit, scope, receive, send)
            return
        seen, started = 0, False

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise _TooLargeError
            return message

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, counted, noted)
        except _TooLargeError:
            if started:
                raise
            await self._refuse(limit, scope, receive, send)

    async def _refuse(self, limit: int, scope: Scope, receive: Receive, send: Send) -> None:
        error = BodyTooLargeError
        response = problem(error.status, error.slug, error.title, f"send at most {limit} bytes")
        await response(scope, receive, send)
