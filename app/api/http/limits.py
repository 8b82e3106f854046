"""Refuses bodies that are too large, too slow or too many before they are in memory.

Two rooms bound the bytes that one process holds, so that strangers cannot use up the memory of
known senders: a body counts against the strangers' room until its sender is authenticated, by a
signature or a bearer token. Bytes are returned when the request is answered.

A target with an encoded control character is also refused: PostgreSQL cannot store or compare
a NUL, and control characters make names ambiguous.
"""

import re
import time
from collections.abc import Callable
from urllib.parse import unquote_to_bytes

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.http.problems import answer
from app.problems import BadCursorError, BodyTooLargeError, BusyError, SlowBodyError
from app.settings import Settings
from lethe.errors import LetheError

# Exactly the routes that take rows: all other bodies are small JSON documents.
UPLOADS = re.compile(r"/v1/models(/[^/]+/contributions)?|/v1/releases/[^/]+/answer")
ROUND_MESSAGES = re.compile(r"/v1/rounds/[^/]+/messages/[a-z]+")
VERIFY = "/v1/certificates/verify"
RATE = 16_384  # least bytes a second of a body, beyond the time that every body has
WAIT = 5.0  # seconds that a request waits for room or its turn before it gets a 503
POLL = 0.02  # seconds
OPEN_BODY = 65_536  # least bytes that an open body counts for: the server's buffer


class Room:
    """Bytes that may be held at once; used only on the event loop."""

    def __init__(self, most: int) -> None:
        self.most = self._free = most

    async def take(self, amount: int) -> None:
        """Take `amount` bytes, waiting for others to return theirs.

        Raises BusyError if there was not enough room in time.
        """
        with anyio.move_on_after(WAIT):
            while amount > self._free:
                await anyio.sleep(POLL)
            self._free -= amount
            return
        raise BusyError("too much is being uploaded at the moment: send it again later")

    def give(self, amount: int) -> None:
        """Return bytes that were taken."""
        self._free += amount


class Account:
    """The bytes that one request holds."""

    def __init__(self, strangers: Room, known: Room) -> None:
        self._rooms = (strangers, known)
        self._held = [0, 0]
        self.proved = False  # whether the sender is authenticated

    def prove(self) -> None:
        """Count what follows against the room of known senders."""
        self.proved = True

    async def take(self, amount: int) -> None:
        """Hold `amount` bytes more, up to a whole room. Raises BusyError as `Room.take`."""
        place = int(self.proved)
        room = self._rooms[place]
        # Otherwise a body larger than the room would wait forever.
        amount = min(amount, room.most - self._held[place])
        await room.take(amount)
        self._held[place] += amount

    def close(self) -> None:
        """Return everything."""
        for room, held in zip(self._rooms, self._held, strict=True):
            room.give(held)
        self._held = [0, 0]


class _RefusedError(Exception):
    pass


class BodyLimit:
    """ASGI middleware: limits the size and time of bodies, whatever Content-Length claims.

    A request's `Account` is in its state, for routes that authenticate the sender. known: tells
    whether an Authorization header has a valid token, because a JSON body is read before its
    route checks the token.
    """

    def __init__(
        self, app: ASGIApp, *, settings: Settings, known: Callable[[str], bool]
    ) -> None:
        self._app, self._known = app, known
        self._body, self._upload = settings.max_body_bytes, settings.max_upload_bytes
        self._verify, self._patience = settings.max_verify_bytes, settings.body_timeout_seconds
        self._strangers = Room(settings.max_anonymous_bytes)
        self._senders = Room(settings.max_held_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 408, 413 or 503."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._limit(scope)
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > limit:
            await _refuse(_too_large(limit), scope, receive, send)
            return
        account = Account(self._strangers, self._senders)
        scope.setdefault("state", {})["account"] = account
        token = headers.get(b"authorization", b"").decode("latin-1")
        if announces_body(scope) and token and await run_in_threadpool(self._known, token):
            account.prove()
        body = _Body(receive, account, limit, self._patience)
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            # FastAPI turns an error of `body` during JSON parsing into a plain 400.
            if body.refused is None or started:
                started = True
                await send(message)

        try:
            await self._app(scope, body.receive, noted)
        except _RefusedError:
            if started:
                raise
        finally:
            account.close()
        if body.refused is not None and not started:
            await _refuse(body.refused, scope, receive, send)

    def _limit(self, scope: Scope) -> int:
        if scope["method"] == "POST":
            if UPLOADS.fullmatch(scope["path"]):
                return self._upload
            if scope["path"] == VERIFY:
                return self._verify
        if scope["method"] == "PUT" and ROUND_MESSAGES.fullmatch(scope["path"]):
            return self._upload
        return self._body


def announces_body(scope: Scope) -> bool:
    """Return whether a request has a body, by RFC 9112 section 6."""
    headers = dict(scope["headers"])
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


class _Body:
    """A request's body as it arrives."""

    def __init__(self, receive: Receive, account: Account, limit: int, patience: float) -> None:
        self._receive, self._account = receive, account
        self._limit, self._patience = limit, patience
        self._seen, self._asked, self._ended = 0, 0.0, False
        self.refused: LetheError | None = None

    async def receive(self) -> Message:
        """Return the next message, once there is room for it."""
        if self._ended:  # only the end of the connection follows, at any time
            return await self._receive()
        try:
            return await self._next()
        except LetheError as error:
            self.refused = error
            raise _RefusedError from None

    async def _next(self) -> Message:
        if not self._asked:
            self._asked = time.monotonic()
            await self._account.take(OPEN_BODY)
        until = self._asked + self._patience + self._seen / RATE
        with anyio.move_on_after(until - time.monotonic()):
            message = await self._receive()
            size = len(message.get("body", b""))
            if self._seen + size > self._limit:
                raise _too_large(self._limit)
            # The first bytes are covered by OPEN_BODY.
            await self._account.take(max(0, min(size, self._seen + size - OPEN_BODY)))
            self._seen += size
            self._ended = not message.get("more_body", False)
            return message
        raise SlowBodyError(
            f"the body did not arrive in {self._patience} s and one more for each {RATE} bytes"
        )


def _too_large(limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"send at most {limit} bytes")


async def _refuse(error: LetheError, scope: Scope, receive: Receive, send: Send) -> None:
    response = answer(error)
    response.headers["connection"] = "close"  # the rest of the body is not wanted
    await response(scope, receive, send)


class PlainTargets:
    """ASGI middleware: answers 400 to a target with an encoded control character."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 400."""
        if scope["type"] == "http" and _holds_control(scope):
            error = BadCursorError("the path or query holds a control character: remove it")
            await answer(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _holds_control(scope: Scope) -> bool:
    # The path is already decoded once, as for routing; the query is decoded later.
    decoded = scope["path"].encode("utf-8", "surrogatepass")
    decoded += unquote_to_bytes(scope["query_string"])
    return any(byte < 0x20 or byte == 0x7F for byte in decoded)
