"""Bodies that are slow, and bodies that are too many at once."""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from app.api.http import limits, parsing
from app.api.http.limits import BodyLimit
from app.api.http.parsing import Parsing
from app.problems import BusyError
from app.settings import Settings
from tests.app.api.test_requests import problem
from tests.installation import Installation, taken
from tests.small import MODEL, Caller, pack, rows

MIB = 1 << 20


class Sender:
    """A request whose body goes on for ever, or stops."""

    def __init__(self, first: int, *, token: str = "", then: float = 60.0) -> None:
        self.status, self.slug = 0, ""
        self.headers: dict[bytes, bytes] = {}
        self.first, self.token, self.then = first, token, then
        self.held = asyncio.Event()
        self._sent = 0

    async def receive(self) -> dict[str, Any]:
        if self._sent < self.first:
            part = min(65_536, self.first - self._sent)
            self._sent += part
            return {"type": "http.request", "body": bytes(part), "more_body": True}
        self.held.set()
        await asyncio.sleep(self.then)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = dict(message["headers"])
        else:
            self.slug = json.loads(message["body"])["type"].rpartition(":")[2]

    async def call(self, app: Any) -> None:
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/certificates/verify",
            "headers": [
                (b"content-length", b"4194304"),
                (b"authorization", self.token.encode()),
            ],
        }
        await app(scope, self.receive, self.send)


async def reads_all(scope: Any, receive: Any, send: Any) -> None:
    held = []
    while (message := await receive()).get("more_body"):
        held.append(message["body"])


def limited(tmp_path: Path, **changes: Any) -> BodyLimit:
    settings = Settings(data_dir=tmp_path, **changes)
    return BodyLimit(reads_all, settings=settings, known=lambda header: header == "known")


@pytest.mark.parametrize("then", [60.0, 0.01])
def test_a_body_that_does_not_arrive_is_cut(tmp_path: Path, then: float) -> None:
    # A byte every 10 ms arrives often, and is slower than anybody's line.
    sender = Sender(100, then=then)
    asyncio.run(sender.call(limited(tmp_path, body_timeout_seconds=1)))
    assert (sender.status, sender.slug) == (408, "body-timeout")
    assert sender.headers[b"connection"] == b"close"


def test_strangers_share_one_room_and_known_senders_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WAIT", 0.05)
    app = limited(tmp_path, max_anonymous_bytes=4 * MIB, max_held_bytes=4 * MIB)

    async def scenario() -> None:
        holding = [Sender(2 * MIB) for _ in range(2)]
        open_ones = [asyncio.create_task(one.call(app)) for one in holding]
        for one in holding:
            await one.held.wait()
        late = Sender(100)
        await late.call(app)
        assert (late.status, late.slug) == (503, "busy")
        assert late.headers[b"retry-after"] == b"5"
        known = Sender(2 * MIB, token="known")
        open_ones.append(asyncio.create_task(known.call(app)))
        await known.held.wait()
        for task in open_ones:
            task.cancel()
        await asyncio.gather(*open_ones, return_exceptions=True)
        after = Sender(2 * MIB)  # what was held was given back
        task = asyncio.create_task(after.call(app))
        await after.held.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())


def test_an_open_body_counts_even_if_it_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WAIT", 0.05)
    app = limited(tmp_path, max_anonymous_bytes=10 * limits.OPEN_BODY)

    async def scenario() -> None:
        idle = [Sender(0) for _ in range(11)]
        tasks = [asyncio.create_task(one.call(app)) for one in idle]
        for one in idle[:10]:
            await one.held.wait()
        await tasks[10]
        assert idle[10].slug == "busy"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())


def test_a_turn_that_does_not_come_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "WAIT", 0.05)
    release = threading.Event()
    running = 0

    def parse() -> int:
        nonlocal running
        running += 1
        assert release.wait(20)
        return running

    async def scenario() -> None:
        turns = Parsing(2)
        first = [asyncio.create_task(turns.parse(parse)) for _ in range(2)]
        while running < 2:
            await anyio.sleep(0.01)
        with pytest.raises(BusyError):
            await turns.parse(parse)
        release.set()
        assert await asyncio.gather(*first) == [2, 2]
        assert await turns.parse(parse) == 3

    asyncio.run(scenario())


def contribution(ready: Installation) -> Callable[[], Any]:
    caller = Caller(ready.caller.http, ready.caller.token, keyid="contributor")
    assert caller.register_key(role="client").status_code == 201
    body = pack(rows(count=1, first=1000))
    return lambda: caller.signed(
        "POST", f"/v1/models/{MODEL}/contributions", body, content_type="a/npz"
    )


def test_a_contribution_waits_for_its_turn_and_is_told_when_to_come_back(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing, "WAIT", 0.05)
    send, most = contribution(ready), ready.settings.max_parsed_at_once
    with taken(ready, "parsing", most - 1):
        with taken(ready, "parsing", 1):
            refused = send()
        problem(refused, 503, "busy")
        assert refused.headers["retry-after"] == "5"
        assert send().status_code == 202


def test_strangers_certificates_and_known_senders_rows_have_turns_of_their_own(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 connections of bad bundles made five of six registrations answer 503."""
    monkeypatch.setattr(parsing, "WAIT", 0.05)
    send, most = contribution(ready), ready.settings.max_parsed_at_once

    def verify() -> Any:
        return ready.caller.http.post("/v1/certificates/verify", files={"bundle": b"{}"})

    with taken(ready, "verifications", most):
        problem(verify(), 503, "busy")
        assert send().status_code == 202
    with taken(ready, "parsing", most):
        assert verify().json()["result"] == "FAIL"
        problem(send(), 503, "busy")
