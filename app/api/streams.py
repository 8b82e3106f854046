"""Server-sent events: a request for the holder of its id, a case for operators and officers."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from app.api.http.deps import Deciding, ServicesDep
from app.notices import stream
from app.service.access import keys
from app.service.access.roles import DECIDING

router = APIRouter(prefix="/v1", tags=["requests"])
# A buffering proxy would deliver all events at the end.
HEADERS = {
    "content-type": "text/event-stream",  # UTF-8 by its definition: it has no charset
    "cache-control": "no-store",
    "x-accel-buffering": "no",
}
SEEN: dict[int | str, dict[str, Any]] = {
    204: {"description": "It has ended, and all was seen."}
}
LastEventId = Annotated[
    str | None, Header(description="Only what came after this log index.", max_length=20)
]


class Following(StreamingResponse):
    """A stream that holds its place from before its head until its end."""

    def __init__(self, place: AbstractContextManager[None], body: AsyncIterator[bytes]) -> None:
        super().__init__(body, headers=HEADERS)
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. Raises BusyError, before the head, when there is no place."""
        with self._place:
            await super().__call__(scope, receive, send)


@router.get("/requests/{request_id}/events", operation_id="followRequest", responses=SEEN)
async def follow_request(
    request_id: str, request: Request, services: ServicesDep, last_event_id: LastEventId = None
) -> Response:
    """Follow a request: its history so far, each new event, progress; ends when it ends.

    Events are `history` with the log index as id, `progress`, and `end`. 204: it has ended, and
    all of its history was seen.
    """
    read = partial(stream.of_request, services, request_id)
    return await _follow(request, request_id, read, last_event_id)


@router.get(
    "/cases/{ref}/events", operation_id="followCase", dependencies=[Deciding], responses=SEEN
)
async def follow_case(
    ref: str,
    request: Request,
    services: ServicesDep,
    authorization: Annotated[str | None, Header(include_in_schema=False)] = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Follow a case, or a request by its reference: its timeline, as `followRequest`."""

    def read(after: int) -> stream.News:
        with services.reading() as session:  # each time, so that a revoked token loses access
            keys.authorise(session, authorization, DECIDING)
        return stream.of_case(services, ref, after)

    return await _follow(request, ref, read, last_event_id, staff=True)


async def _follow(
    request: Request,
    what: str,
    read: Callable[[int], stream.News],
    last: str | None,
    *,
    staff: bool = False,
) -> Response:
    after = int(last) if last is not None and last.isascii() and last.isdigit() else -1
    first = await run_in_threadpool(read, after)
    if after >= 0 and first.ended and not first.items:
        return Response(status_code=204)  # WHATWG HTML 9.2: connect no more
    streams: stream.Streams = request.app.state.streams
    place = streams.place(what, first.keyid, staff=staff)
    return Following(place, stream.follow(streams, read, after, first))
