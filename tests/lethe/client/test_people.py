"""Calls about people: digests in bodies, and both clients send the same."""

import asyncio
from typing import Any

import httpx2

from lethe.client import AsyncClient, Client
from lethe.identity import parse

TOKEN, BASE = "lethe_operator_x", "https://erasure.example"
ANN = parse("email=ann@example.org")
SEEN: list[str] = []


def answer(request: httpx2.Request) -> httpx2.Response:
    """Note what was sent and answer what each call expects."""
    sent = f"{request.method} {request.url} {request.content.decode()}"
    SEEN.append(sent)
    assert "ann@" not in sent
    if request.url.path.endswith("/summary"):
        return httpx2.Response(200, content=b"signed")
    return httpx2.Response(200, json={"items": [{"model": "m"}], "added": 2, "ref": "r"})


def synchronous() -> list[Any]:
    with Client(BASE, token=TOKEN, transport=httpx2.MockTransport(answer)) as client:
        return [
            client.find_person(ANN, ["m"]),
            client.import_people("m", [("r1", ANN)]),
            client.open_case(ANN, "T1", checked="by phone", contact="c")["ref"],
            client.case("a/b")["ref"],
            client.case_summary("a"),
            client.open_contact("a")["ref"],
            client.close_case("a")["ref"],
        ]


async def asynchronous() -> list[Any]:
    transport = httpx2.MockTransport(answer)
    async with AsyncClient(BASE, token=TOKEN, transport=transport) as client:
        return [
            await client.find_person(ANN, ["m"]),
            await client.import_people("m", [("r1", ANN)]),
            (await client.open_case(ANN, "T1", checked="by phone", contact="c"))["ref"],
            (await client.case("a/b"))["ref"],
            await client.case_summary("a"),
            (await client.open_contact("a"))["ref"],
            (await client.close_case("a"))["ref"],
        ]


def test_both_clients_send_digests_and_the_same() -> None:
    SEEN.clear()
    answers = [[{"model": "m"}], 2, "r", "r", b"signed", "r", "r"]
    assert synchronous() == answers
    sent = list(SEEN)
    SEEN.clear()
    assert asyncio.run(asynchronous()) == answers
    assert sent == SEEN
    paths = [one.split(" ")[:2] for one in sent]
    assert paths == [
        ["POST", f"{BASE}/v1/people/find"],
        ["POST", f"{BASE}/v1/people/import"],
        ["POST", f"{BASE}/v1/cases"],
        ["GET", f"{BASE}/v1/cases/a%2Fb"],
        ["GET", f"{BASE}/v1/cases/a/summary"],
        ["POST", f"{BASE}/v1/cases/a/contact"],
        ["POST", f"{BASE}/v1/cases/a/close"],
    ]
    assert ANN.digests["sha256"].hex() in sent[0]
