"""A request's stream: both clients yield the same, and name what goes wrong."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import chain

import httpx2
import pytest

from lethe.client import AsyncClient, Client
from lethe.client.errors import AnswerError, ProblemError, UnreachableError
from lethe.client.events import MOST, EventParser, StreamEvent

BASE = "https://erasure.example"
STREAM = 'retry: 3\n\nevent: history\nid: 7\ndata: {"event": "x"}\n\n: beat\n\nevent: end\ndata: {}\n\n'
Answer = Callable[[httpx2.Request], httpx2.Response]


def read(answer: Answer, after: int | None = None) -> list[StreamEvent]:
    """Return the events, which both clients must yield alike."""
    transport = httpx2.MockTransport(answer)

    async def asynchronous() -> list[StreamEvent]:
        async with AsyncClient(BASE, transport=transport) as client:
            return [one async for one in client.events("a/b", after)]

    with Client(BASE, transport=transport) as client:
        found = list(client.events("a/b", after))
    assert asyncio.run(asynchronous()) == found
    return found


def test_events_are_asked_for_after_an_entry_and_yielded() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        assert request.url.raw_path == b"/v1/requests/a%2Fb/events"
        assert request.headers["accept"] == "text/event-stream"
        assert request.headers["last-event-id"] == "6"
        return httpx2.Response(200, text=STREAM)

    assert read(answer, 6) == [
        StreamEvent("history", 7, {"event": "x"}),
        StreamEvent("end", None, {}),
    ]


def test_an_ended_request_has_no_more() -> None:
    assert read(lambda _: httpx2.Response(204)) == []


def refusing(request: httpx2.Request) -> httpx2.Response:
    document = {
        "type": "urn:lethe:problem:busy",
        "title": "Busy",
        "status": 503,
        "detail": "later",
    }
    return httpx2.Response(503, json=document)


def lost(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ReadError("gone")


@pytest.mark.parametrize("charset", ["zlib", "idna", "punycode", "rot13", "utf-16"])
def test_a_stream_is_utf_8_whatever_the_service_calls_it(charset: str) -> None:
    """Python's other decoders raise what no caller expects, or take quadratic time."""
    headers = {"content-type": f"text/event-stream; charset={charset}"}
    found = read(lambda _: httpx2.Response(200, content=STREAM.encode(), headers=headers))
    assert [one.kind for one in found] == ["history", "end"]


WRONG: list[tuple[str, Answer, type[Exception]]] = [
    ("refused", refusing, ProblemError),
    ("lost", lost, UnreachableError),
    ("no JSON", lambda _: httpx2.Response(200, text="data: x\n\n"), AnswerError),
    ("no object", lambda _: httpx2.Response(200, text="data: 1\n\n"), AnswerError),
    ("too deep", lambda _: httpx2.Response(200, text=f"data: {'[' * 9999}\n\n"), AnswerError),
    ("no end", lambda _: httpx2.Response(200, text="x" * (MOST + 1)), AnswerError),
]


@pytest.mark.parametrize(("answer", "kind"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])  # fmt: skip
def test_what_is_no_stream_is_an_error(answer: Answer, kind: type[Exception]) -> None:
    async def asynchronous() -> None:
        async with AsyncClient(BASE, transport=httpx2.MockTransport(answer)) as client:
            async for _ in client.events("r"):
                pass

    with Client(BASE, transport=httpx2.MockTransport(answer)) as client, pytest.raises(kind):
        list(client.events("r"))
    with pytest.raises(kind):
        asyncio.run(asynchronous())


@pytest.mark.parametrize("line", ["data: {}\n", "{}: x\n"])
def test_an_event_without_end_is_refused(line: str) -> None:
    parser = EventParser()
    fed: list[int] = []  # characters, without the line feeds

    def lines() -> Iterator[str]:
        for number in range(MOST):
            text = line.format(f"{number:0100}")
            fed.append(len(text) - 1)
            yield text

    with pytest.raises(AnswerError, match="an event of more than"):
        list(chain.from_iterable(map(parser.feed, lines())))
    assert sum(fed[:-1]) <= MOST < sum(fed)


def test_a_number_of_thousands_of_digits_is_no_index() -> None:
    parser = EventParser()
    [event] = parser.feed(f'id: {"9" * 5000}\ndata: {{"a":1}}\n\n')
    assert event.log_index is None
    [event] = parser.feed('id: 12\ndata: {"a":1}\n\n')
    assert event.log_index == 12


def test_pieces_of_a_line_are_joined_once() -> None:
    """Joined at each piece, a megabyte in single characters would be copied 500,000 times."""
    copied = 0

    class Piece(str):
        __slots__ = ()

        def __radd__(self, other: str) -> str:
            nonlocal copied
            copied += len(other)
            return f"{other}{self}"

    parser = EventParser()
    found = [event for one in STREAM for event in parser.feed(Piece(one))]
    assert [event.kind for event in found] == ["history", "end"]
    assert copied == 0
