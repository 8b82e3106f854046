"""Calls about audits: both clients send the same and return the same."""

import asyncio
from typing import Any

import httpx2

from lethe.client import AsyncClient, Client

TOKEN = "lethe_operator_x"
BASE = "https://erasure.example"


def answer(request: httpx2.Request) -> httpx2.Response:
    """Say what was asked, or a page with it."""
    said = {"asked": f"{request.method} {request.url.path} {request.content.decode()}"}
    if request.url.path.endswith("/report"):
        return httpx2.Response(200, content=b"signed")
    listed = (request.method, request.url.path) == ("GET", "/v1/audits")
    return httpx2.Response(200, json={"items": [said], "next": None} if listed else said)


def synchronous() -> list[Any]:
    with Client(BASE, token=TOKEN, transport=httpx2.MockTransport(answer)) as client:
        return [
            client.start_audit({"model": "x"}),
            client.stop_audit("a/b"),
            client.audit("a"),
            client.audit_file("a", "report"),
            list(client.audits()),
        ]


async def asynchronous() -> list[Any]:
    transport = httpx2.MockTransport(answer)
    async with AsyncClient(BASE, token=TOKEN, transport=transport) as client:
        return [
            await client.start_audit({"model": "x"}),
            await client.stop_audit("a/b"),
            await client.audit("a"),
            await client.audit_file("a", "report"),
            [one async for one in client.audits()],
        ]


def test_both_clients_ask_the_same() -> None:
    wanted: list[Any] = [
        {"asked": 'POST /v1/audits {"model":"x"}'},
        {"asked": "POST /v1/audits/a/b/stop "},  # sent as a%2Fb: an id is one segment
        {"asked": "GET /v1/audits/a "},
        b"signed",
        [{"asked": "GET /v1/audits "}],
    ]
    assert synchronous() == wanted
    assert asyncio.run(asynchronous()) == wanted
