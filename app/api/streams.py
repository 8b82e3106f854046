"""Streams of server-sent events: a request's for who holds its id, a case's for operators."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from app.api.http.deps import Operator, ServicesDep
from app.notices import stream

router = APIRouter(prefix="/v1", tags=["requests"])
# A proxy that buffers would deliver the events together at the end.
HEADERS = {
    "content-type": "text/event-stream",  # UTF-8 by its definition: it has no charset
    "cache-control": "no-store",
    "x-accel-buffering": "no",
}
SEEN: dict[int | str, dict[str, Any]] = {
    204: {"description": "It has ended, and all was seen."}
}
LastEventId = Annotated[
    str | None,
    Header(description="Only what came after this log index.", max_length=20),
]


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
    "/cases/{ref}/events", operation_id="followCase", dependencies=[Operator], responses=SEEN
)
async def follow_case(
    ref: str, request: Request, services: ServicesDep, last_event_id: LastEventId = None
) -> Response:
    """Follow a case, or a request by its reference: its timeline, as `followRequest`."""
    read = partial(stream.of_case, services, ref)
    return await _follow(request, ref, read, last_event_id)


async def _follow(
    request: Request, what: str, read: Callable[[int], stream.News], last: str | None
) -> Response:
    after = int(last) if last is not None and last.isascii() and last.isdigit() else -1
    first = await run_in_threadpool(read, after)
    if after >= 0 and first.ended and not first.items:
        return Response(status_code=204)  # WHATWG HTML 9.2: connect no more
    streams: stream.Streams = request.app.state.streams
    streams.check(what)
    body = stream.follow(streams, what, read, after, first)
    return StreamingResponse(body, headers=HEADERS)
