"""`lethe hold`, and its calls of both clients."""

import asyncio
import json
from typing import Any

import httpx2
from click.testing import CliRunner, Result

from lethe.cli.hold import hold
from lethe.client import AsyncClient
from tests.lethe.cli.test_webhook import BASE, TOKEN

HOLD: dict[str, Any] = {
    "id": "5f0c9d7e-1c0f-4f55-8a0e-0e3f6c1d2b3a",
    "of": "request",
    "target": "0b5d1c1e-6a4e-4b52-9d39-0d5a6c6d2f11",
    "reason": "Smith v. Example",
    "placed_by": "carol",
    "placed_at": "2026-11-24T00:00:00Z",
    "log_index": 12,
    "released_by": None,
    "released_at": None,
    "release_index": None,
}
ENDED = HOLD | {
    "released_by": "dave",
    "released_at": "2026-11-25T00:00:00Z",
    "release_index": 13,
}


class Service:
    """Answers each call and notes it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bytes]] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        assert request.headers["authorization"] == f"Bearer {TOKEN}"
        self.seen.append((request.method, str(request.url), request.content))
        if request.method == "GET":
            return httpx2.Response(200, json={"items": [HOLD, ENDED], "next": None})
        released = request.url.path.endswith("/release")
        return httpx2.Response(200 if released else 201, json=ENDED if released else HOLD)


def run(*arguments: str) -> Result:
    environment = {"LETHE_URL": BASE, "LETHE_TOKEN": TOKEN}
    result = CliRunner().invoke(hold, arguments, env=environment)
    assert result.exit_code == 0, result.output
    return result


def test_a_hold_is_placed_listed_and_released(service: Service) -> None:
    told = run("place", HOLD["target"], "--reason", HOLD["reason"]).output
    assert told == f"{HOLD['id']} holds the request {HOLD['target']}: log entry 12\n"
    method, url, body = service.seen[-1]
    assert (method, url) == ("POST", f"{BASE}/v1/holds")
    assert json.loads(body) == {"ref": HOLD["target"], "reason": HOLD["reason"]}
    listed = run("list", "--released").output
    assert "carol 2026-11-24T00:00:00Z" in listed
    assert "dave 2026-11-25T00:00:00Z" in listed
    assert "released=true" in service.seen[-1][1].lower()
    assert run("release", HOLD["id"]).output == f"released {HOLD['id']}: log entry 13\n"
    assert service.seen[-1][:2] == ("POST", f"{BASE}/v1/holds/{HOLD['id']}/release")


def test_json_is_what_the_service_says(service: Service) -> None:
    assert json.loads(run("place", "small", "--reason", "x", "--json").output) == HOLD
    assert json.loads(run("list", "--json").output) == [HOLD, ENDED]
    assert "released" not in service.seen[-1][1].lower()
    assert json.loads(run("release", HOLD["id"], "--json").output) == ENDED


def test_a_reason_is_needed(service: Service) -> None:
    answer = CliRunner().invoke(hold, ["place", "x"], env={"LETHE_URL": BASE})
    assert answer.exit_code == 2
    assert "--reason" in answer.output


def test_the_async_client_makes_the_same_calls(service: Service) -> None:
    async def calls() -> None:
        transport = httpx2.MockTransport(service)
        async with AsyncClient(BASE, token=TOKEN, transport=transport) as client:
            assert (await client.place_hold("small", "x"))["id"] == HOLD["id"]
            assert [one["id"] async for one in client.holds()] == [HOLD["id"], HOLD["id"]]
            assert (await client.release_hold(HOLD["id"]))["released_by"] == "dave"

    asyncio.run(calls())
    assert [method for method, _, _ in service.seen] == ["POST", "GET", "POST"]
