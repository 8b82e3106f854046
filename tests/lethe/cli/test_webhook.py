"""`lethe webhook`: what an operator types and reads, on calls as they are sent."""

import asyncio
import json
from typing import Any

import httpx2
from click.testing import CliRunner, Result

from lethe.catalogue import NOTICES
from lethe.cli.webhook import webhook
from lethe.client import AsyncClient

TOKEN, BASE = "lethe_operator_x", "https://erasure.example"
HOOK: dict[str, Any] = {
    "id": "wh_1",
    "url": "https://hooks.example.org/x",
    "events": ["key.alarm"],
    "model": None,
    "secrets": [{"signature": "v1", "public_key": None, "until": "2026-12-01T00:00:00Z"}],
    "created_by": "ann",
    "created_at": "2026-11-24T00:00:00Z",
    "disabled": None,
}
SENT: dict[str, Any] = {
    "id": "msg_1",
    "event": "key.alarm",
    "about": "log-entry-7@2026-11-24",
    "state": "failed",
    "attempts": 10,
    "created_at": "2026-11-24T00:00:00Z",
    "next_at": None,
    "answer": "500",
    "ended_at": "2026-11-27T00:00:00Z",
}


class Service:
    """Answers each call and notes it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bytes]] = []
        self.secret = "whsec_AAAA"

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        assert request.headers["authorization"] == f"Bearer {TOKEN}"
        self.seen.append((request.method, request.url.path, request.content))
        path = request.url.path.removeprefix("/v1/webhooks")
        if request.method == "GET" and path == "":
            return httpx2.Response(200, json={"items": [HOOK], "next": None})
        if path.endswith("/deliveries"):
            return httpx2.Response(200, json={"items": [SENT], "next": None})
        if path.endswith("/replay"):
            return httpx2.Response(200, json={"waiting": 1})
        if path.endswith("/test"):
            return httpx2.Response(200, json=SENT)
        made = path == "" or path.endswith("/rotate")
        extra = {"secret": self.secret} if made else {}
        return httpx2.Response(200, json={**HOOK, **extra})


def run(*arguments: str) -> Result:
    return CliRunner().invoke(webhook, arguments, env={"LETHE_URL": BASE, "LETHE_TOKEN": TOKEN})


def test_a_new_endpoint_prints_its_secret_once(service: Service) -> None:
    result = run("add", HOOK["url"], "--event", "key.alarm", "--model", "m")
    assert result.exit_code == 0, result.output
    assert "whsec_AAAA" in result.stdout
    assert "not shown again" in result.stderr
    assert json.loads(service.seen[0][2]) == {
        "url": HOOK["url"], "events": ["key.alarm"], "model": "m", "signature": "v1",
    }  # fmt: skip
    service.secret = "whpk_BBBB"
    result = run("add", HOOK["url"], "--signature", "v1a", "--json")
    assert json.loads(result.stdout)["secret"] == "whpk_BBBB"
    assert json.loads(service.seen[1][2])["events"] == list(NOTICES)
    assert "public key" in run("rotate", "wh_1").stderr


def test_an_endpoint_is_shown_with_its_deliveries(service: Service) -> None:
    shown = run("show", "wh_1").stdout
    for text in ("wh_1", "in use", "v1, until 2026-12-01", "msg_1", "failed", "10", "500"):
        assert text in shown
    assert json.loads(run("show", "wh_1", "--json").stdout)["deliveries"] == [SENT]
    assert "all models" in run("list").stdout
    assert json.loads(run("list", "--json").stdout) == [HOOK]


def test_acts_on_an_endpoint(service: Service) -> None:
    assert "1 notice will be sent again" in run("replay", "wh_1").stdout
    assert json.loads(run("replay", "wh_1", "--json").stdout) == {"waiting": 1}
    assert run("replay", "wh_1", "--delivery", "msg_1").exit_code == 0
    sent = [json.loads(body)["delivery"] for _, _, body in service.seen]
    assert sent == [None, None, "msg_1"]
    failed = run("test", "wh_1")
    assert (failed.exit_code, failed.stdout) == (1, "failed: 500\n")
    assert json.loads(run("test", "wh_1", "--json").stdout) == SENT
    for act in ("disable", "enable"):
        assert "wh_1" in run(act, "wh_1").stdout
        assert json.loads(run(act, "wh_1", "--json").stdout)["id"] == "wh_1"
    assert run("remove", "wh_1").stdout == "removed wh_1\n"
    assert json.loads(run("remove", "wh_1", "--json").stdout)["id"] == "wh_1"
    assert service.seen[-1][:2] == ("DELETE", "/v1/webhooks/wh_1")


def test_the_asynchronous_client_sends_the_same() -> None:
    service = Service()

    async def calls() -> None:
        transport = httpx2.MockTransport(service)
        async with AsyncClient(BASE, token=TOKEN, transport=transport) as client:
            assert [one async for one in client.webhooks()] == [HOOK]
            assert (await client.webhook("wh_1"))["id"] == "wh_1"
            assert (await client.act_on_webhook("wh_1", "rotate"))["secret"]
            assert [one async for one in client.deliveries("wh_1")] == [SENT]

    asyncio.run(calls())
    assert [path for _, path, _ in service.seen][-1] == "/v1/webhooks/wh_1/deliveries"
