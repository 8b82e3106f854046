"""A hostile service cannot fill the memory of whoever calls it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2
import pytest

from lethe.client import AsyncClient, Client
from lethe.client.calls import ANSWER
from lethe.client.core import REFUSAL
from lethe.client.errors import AnswerError, ProblemError

CHUNK = 2**20
BASE = "http://ledger.test"


class Endless(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that never ends; counts what is taken of it."""

    def __init__(self) -> None:
        self.taken = 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self.taken += CHUNK
            assert self.taken < 4 * ANSWER, "nobody stops reading"
            yield b" " * CHUNK

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self:
            yield chunk


def answering(status: int, body: Endless) -> Callable[[httpx2.Request], httpx2.Response]:
    return lambda _: httpx2.Response(status, stream=body)


@pytest.mark.parametrize(("status", "most"), [(200, ANSWER), (404, REFUSAL), (503, REFUSAL)])
def test_an_endless_answer_is_refused(status: int, most: int) -> None:
    body = Endless()
    transport = httpx2.MockTransport(answering(status, body))
    with Client(BASE, transport=transport) as client, pytest.raises(AnswerError):
        client.status("x")
    assert body.taken <= most + CHUNK


def test_only_evidence_models_and_statistics_may_be_larger() -> None:
    body = Endless()
    transport = httpx2.MockTransport(answering(200, body))
    reads: list[Callable[[Client], bytes]] = [
        lambda client: client.certificate("x"),
        lambda client: client.case_summary("x"),
        lambda client: client.model_signature("x", 1),
        lambda client: client.period_report("2026-01-01", "2026-12-31"),
    ]
    with Client(BASE, token="t", transport=transport) as client:
        for read in reads:
            body.taken = 0
            with pytest.raises(AnswerError, match="more than"):
                read(client)
            assert body.taken <= ANSWER + CHUNK


def test_an_endless_answer_is_refused_without_threads_too() -> None:
    body = Endless()

    async def ask() -> None:
        transport = httpx2.MockTransport(answering(200, body))
        async with AsyncClient(BASE, transport=transport) as client:
            await client.status("x")

    with pytest.raises(AnswerError, match="more than"):
        asyncio.run(ask())
    assert body.taken <= ANSWER + CHUNK


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("coding", ["gzip", "br", "gzip, gzip, gzip", "identity, gzip"])
def test_a_compressed_answer_is_refused_unread(status: int, coding: str) -> None:
    """It could unpack for hours without a byte, or go on uncounted after its end."""
    body = Endless()

    def answer(request: httpx2.Request) -> httpx2.Response:
        assert request.headers["accept-encoding"] == "identity"
        return httpx2.Response(status, headers={"content-encoding": coding}, stream=body)

    async def ask() -> None:
        async with AsyncClient(BASE, transport=httpx2.MockTransport(answer)) as client:
            with pytest.raises(AnswerError, match="compressed"):
                await client.status("x")
            with pytest.raises(AnswerError, match="compressed"):
                [one async for one in client.events("x")]

    with Client(BASE, transport=httpx2.MockTransport(answer)) as client:
        with pytest.raises(AnswerError, match="compressed"):
            client.status("x")
        with pytest.raises(AnswerError, match="compressed"):
            list(client.events("x"))
    asyncio.run(ask())
    assert body.taken == 0


def test_a_good_answer_arrives_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = [b"abc" * 1000]

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=sent[0])

    with Client(BASE, transport=httpx2.MockTransport(answer)) as client:
        assert client.evidence("x") == sent[0]


def test_an_answer_that_says_two_things_is_refused() -> None:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(409, content=b'{"detail": "a", "detail": "b"}')

    with (
        Client(BASE, transport=httpx2.MockTransport(answer)) as client,
        pytest.raises(ProblemError) as refused,
    ):
        client.status("x")
    assert refused.value.slug == "unspecified"
