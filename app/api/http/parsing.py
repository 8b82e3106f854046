"""Bodies are parsed a few at a time, because unpacked they are larger than what was sent.

Documents for holders of a request's id are also rendered a few at a time, and certificates of
strangers verified, each in turns of their own: asking for many must not keep known senders from
sending rows and messages.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, TypeVar

import anyio
from fastapi import Depends, Request

from app.api.http.limits import WAIT
from app.problems import BusyError

T = TypeVar("T")
SMALL = 16_384  # bytes of JSON that are parsed on the event loop, in 2 ms


class Parsing:
    """The turns of one process."""

    def __init__(self, at_once: int) -> None:
        self._turns = anyio.Semaphore(at_once)
        # Threads of their own: a parser must not wait for threads that wait for the log.
        self._threads = anyio.CapacityLimiter(at_once)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, which takes no thread. Raises BusyError if none came in time."""
        try:
            self._turns.acquire_nowait()  # a free turn is taken however late the loop is
        except anyio.WouldBlock:
            with anyio.move_on_after(WAIT) as waiting:
                await self._turns.acquire()
            if waiting.cancelled_caught:
                raise BusyError(
                    "as much as allowed at once is being parsed or rendered: send again later"
                ) from None
        try:
            yield
        finally:
            self._turns.release()

    async def parse(self, parse: Callable[[], T]) -> T:
        """Call `parse` in a thread, in a turn, and return the result. Raises BusyError."""
        async with self.turn():
            return await anyio.to_thread.run_sync(parse, limiter=self._threads)

    async def parse_body(self, body: bytes, parse: Callable[[bytes], T]) -> T:
        """Return `parse(body)`; a small body takes no turn. Raises BusyError as `parse`."""
        return parse(body) if len(body) <= SMALL else await self.parse(lambda: parse(body))


def get_parsing(request: Request) -> Parsing:
    """Return the turns of this process for bodies of known senders."""
    parsing: Parsing = request.app.state.parsing
    return parsing


def get_documents(request: Request) -> Parsing:
    """Return the turns of this process for documents."""
    documents: Parsing = request.app.state.documents
    return documents


def get_verifications(request: Request) -> Parsing:
    """Return the turns of this process for certificates, which anybody may have verified."""
    verifications: Parsing = request.app.state.verifications
    return verifications


ParsingDep = Annotated[Parsing, Depends(get_parsing)]
DocumentsDep = Annotated[Parsing, Depends(get_documents)]
VerificationsDep = Annotated[Parsing, Depends(get_verifications)]
