"""A body that is too large is refused before it is in memory."""

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.problems import problem
from app.service.problems import BodyTooLargeError

# Exactly the routes that take rows: whatever else is sent is a small JSON document.
UPLOADS = re.compile(r"/v1/models(/[^/]+/contributions)?|/v1/releases/[^/]+/answer")
ROUND_MESSAGES = re.compile(r"/v1/rounds/[^/]+/messages/[a-z]+")
VERIFY = "/v1/certificates/verify"


class _TooLargeError(Exception):
    pass


class BodyLimit:
    """ASGI middleware: counts what arrives, whatever Content-Length claimed."""

    def __init__(self, app: ASGIApp, *, body: int, upload: int, verify: int) -> None:
        self._app = app
        self._body, self._upload, self._verify = body, upload, verify

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 413."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._limit(scope)
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
            # FastAPI turns what `counted` raises while it parses JSON into a plain 400.
            if seen <= limit or started:
                started = True
                await send(message)

        try:
            await self._app(scope, counted, noted)
        except _TooLargeError:
            if started:
                raise
        if seen > limit and not started:
            await self._refuse(limit, scope, receive, send)

    def _limit(self, scope: Scope) -> int:
        if scope["method"] == "POST":
            if UPLOADS.fullmatch(scope["path"]):
                return self._upload
            if scope["path"] == VERIFY:
                return self._verify
        if scope["method"] == "PUT" and ROUND_MESSAGES.fullmatch(scope["path"]):
            return self._upload
        return self._body

    async def _refuse(self, limit: int, scope: Scope, receive: Receive, send: Send) -> None:
        error = BodyTooLargeError
        response = problem(error.status, error.slug, error.title, f"send at most {limit} bytes")
        await response(scope, receive, send)
