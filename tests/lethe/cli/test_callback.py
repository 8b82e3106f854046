"""`lethe callback`, and the address that `lethe request submit` signs."""

import asyncio
import json
from typing import Any

import httpx2
from click.testing import CliRunner, Result

from lethe.cli.callback import callback
from lethe.client import AsyncClient
from tests.lethe.cli.test_webhook import BASE, SENT, TOKEN

CALLBACK: dict[str, Any] = {
    "id": "cb_1",
    "kind": "request",
    "owner": "alice",
    "request": "0b5d1c1e-6a4e-4b52-9d39-0d5a6c6d2f11",
    "created_at": "2026-11-24T00:00:00Z",
    "delivered_state": None,
    "ended": False,
}


class Service:
    """Answers each call and notes it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bytes]] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path.removeprefix("/v1/callbacks")
        self.seen.append((request.method, str(request.url), request.content))
        if path == "/key":
            assert "authorization" not in request.headers
            return httpx2.Response(200, json={"key": "whpk_AAAA"})
        assert request.headers["authorization"] == f"Bearer {TOKEN}"
        if path == "":
            return httpx2.Response(200, json={"items": [CALLBACK], "next": None})
        if path.endswith("/deliveries"):
            return httpx2.Response(200, json={"items": [SENT], "next": None})
        if path.endswith("/replay"):
            return httpx2.Response(200, json={"waiting": 2})
        return httpx2.Response(200, json=CALLBACK)


def run(*arguments: str) -> Result:
    env = {"LETHE_URL": BASE, "LETHE_TOKEN": TOKEN}
    return CliRunner().invoke(callback, arguments, env=env)


def test_callbacks_are_listed_shown_replayed_and_removed(service: Service) -> None:
    assert run("key").stdout == "whpk_AAAA\n"
    assert json.loads(run("key", "--json").stdout) == {"key": "whpk_AAAA"}
    listed = run("list", "--ref", CALLBACK["request"]).stdout
    for text in ("cb_1", "alice", CALLBACK["request"]):
        assert text in listed
    assert service.seen[-1][1].endswith(f"?ref={CALLBACK['request']}")
    assert json.loads(run("list", "--json").stdout) == [CALLBACK]
    shown = run("show", "cb_1").stdout
    for text in ("msg_1", "failed", "10", "500"):
        assert text in shown
    assert json.loads(run("show", "cb_1", "--json").stdout) == [SENT]
    assert run("replay", "cb_1").stdout == "2 notices will be sent again\n"
    assert json.loads(service.seen[-1][2]) == {"delivery": None}
    assert json.loads(run("replay", "cb_1", "--json").stdout) == {"waiting": 2}
    assert json.loads(run("remove", "cb_1", "--json").stdout) == CALLBACK
    assert run("remove", "cb_1").stdout == "removed cb_1\n"
    assert service.seen[-1][:2] == ("DELETE", f"{BASE}/v1/callbacks/cb_1")


def test_the_asynchronous_client_sends_the_same() -> None:
    service = Service()

    async def calls() -> None:
        transport = httpx2.MockTransport(service)
        async with AsyncClient(BASE, transport=transport) as client:
            assert await client.callback_key() == "whpk_AAAA"
        async with AsyncClient(BASE, token=TOKEN, transport=transport) as client:
            assert [one async for one in client.callbacks()] == [CALLBACK]
            assert [one async for one in client.callback_deliveries("cb_1")] == [SENT]
            assert (await client.replay_callback("cb_1", "msg_1"))["waiting"] == 2
            assert (await client.remove_callback("cb_1"))["id"] == "cb_1"

    asyncio.run(calls())
    assert json.loads(service.seen[3][2]) == {"delivery": "msg_1"}
