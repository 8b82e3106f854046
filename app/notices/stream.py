"""Server-sent events: the history of a request or case as it is written, and its progress.

WHATWG HTML section 9.2. Between two polls of the database a stream holds neither a connection
nor a thread. The number of streams in a process and their lifetime are bounded: clients of this
protocol connect again, and resume after the last log index that they saw.
"""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlmodel import col, select
from starlette.concurrency import run_in_threadpool

from app.problems import BusyError, ForbiddenError, UnauthorizedError
from app.reconcile.model_events import CLOSED
from app.schemas.requests import HistoryItem
from app.service.context import Services
from app.service.desk import cases
from app.service.on_behalf import FOLLOWED
from app.service.queue import progress_of
from app.service.requests import find
from app.service.review import detail
from models import Job, RequestEvent

FIRST_POLL_S, POLL_S, POLL_GROWTH = 0.1, 1.0, 1.3  # an erasure takes about 0.3 s when idle
BEAT_S = 15.0  # proxies close silent connections, often after 30 s
LIFE_S = 3600.0
MOST_EACH = 5  # of one request, so that the holder of its id cannot take all places
MOST_OF_KEY = 20  # of the requests of one key, so that its holder cannot take all places
# Streams of one process, each of which reads once in POLL_S or more often: of requests, and as
# many of cases, so that requesters cannot keep operators out.
MOST = 100


@dataclass(frozen=True, slots=True)
class News:
    """New history items with their log indexes, in that order; progress if any."""

    items: list[tuple[int, dict[str, Any]]]
    progress: dict[str, Any] | None
    state: str
    ended: bool
    keyid: str | None = None  # of a request that its key's holder submitted


class Streams:
    """The open streams of one process. `end` ends them at their next poll."""

    def __init__(self) -> None:
        self.open: Counter[str] = Counter()  # by what is followed
        self.of_staff: Counter[str] = Counter()  # the same, of operators
        self.of_keys: Counter[str] = Counter()  # those of `open`, by key
        self.ending = False
        self._counting = threading.Lock()

    @contextmanager
    def place(
        self, what: str, keyid: str | None = None, *, staff: bool = False
    ) -> Iterator[None]:
        """Hold a place for a stream in the block; staff: one of those for operators.

        Raises BusyError if there are MOST, MOST_EACH of `what`, or MOST_OF_KEY of the key, or
        the process is ending.
        """
        held = self.of_staff if staff else self.open
        with self._counting:
            full = held.total() >= MOST or held[what] >= MOST_EACH
            if full or self.of_keys[keyid or ""] >= MOST_OF_KEY or self.ending:
                raise BusyError(
                    "too many streams are open: ask again later, or ask for the state"
                )
            held[what] += 1
            if keyid is not None:
                self.of_keys[keyid] += 1
        try:
            yield
        finally:
            with self._counting:
                held[what] -= 1
                held += Counter()  # removes zero counts
                if keyid is not None:
                    self.of_keys[keyid] -= 1
                    self.of_keys += Counter()

    def end(self) -> None:
        """End all streams: an open one would delay the end of the process."""
        self.ending = True


def of_request(services: Services, request_id: str, after: int) -> News:
    """Return the news of a request. Raises NotFoundError if there is none."""
    with services.reading() as session:
        request = find(session, request_id)
        query = (
            select(RequestEvent)
            .where(RequestEvent.request_id == request.id, col(RequestEvent.log_index) > after)
            .order_by(col(RequestEvent.log_index))
        )
        items = [
            HistoryItem(
                event=one.event,
                at=one.at,
                log_index=one.log_index,
                detail=detail(one, staff=False),
            )
            for one in session.exec(query)
            if one.event != FOLLOWED  # as in the request's history
        ]
        job = session.exec(select(Job).where(Job.request_id == request.id)).one()
        progress = progress_of(job)
    return News(
        [(one.log_index, one.model_dump(mode="json")) for one in items],
        None if progress is None else progress.model_dump(mode="json"),
        request.state,
        request.state in CLOSED,
        request.keyid,
    )


def of_case(services: Services, ref: str, after: int) -> News:
    """Return the news of a case, for operators. Raises as `cases.show`."""
    shown = cases.show(services, ref)
    items = [one for one in shown.timeline if one.log_index > after]
    return News(
        [(one.log_index, one.model_dump(mode="json")) for one in items],
        None,
        shown.state,
        shown.state != "open",
    )


async def follow(
    streams: Streams, read: Callable[[int], News], after: int, first: News
) -> AsyncIterator[bytes]:
    """Yield events until the request or case has ended, or its reader has lost access.

    read: returns the news after a log index. first: its first result.
    """
    news, progress, pause = first, None, FIRST_POLL_S
    began = beat = time.monotonic()
    yield b"retry: 3000\n\n"
    while True:
        for index, item in news.items:
            yield _event("history", item, index)
            after = index
        if news.progress != progress and news.progress is not None:
            yield _event("progress", news.progress)
        progress = news.progress
        if news.ended:
            yield _event("end", {"state": news.state})
            return
        now = time.monotonic()
        if streams.ending or now - began > LIFE_S:
            return
        if now - beat > BEAT_S:
            beat = now
            yield b": still here\n\n"
        await asyncio.sleep(pause)
        try:
            news = await run_in_threadpool(read, after)
        except (UnauthorizedError, ForbiddenError):  # the token was revoked meanwhile
            return
        is_new = bool(news.items) or news.progress != progress
        pause = FIRST_POLL_S if is_new else min(POLL_S, pause * POLL_GROWTH)


def _event(kind: str, data: dict[str, Any], index: int | None = None) -> bytes:
    number = "" if index is None else f"id: {index}\n"
    return f"event: {kind}\n{number}data: {json.dumps(data)}\n\n".encode()
