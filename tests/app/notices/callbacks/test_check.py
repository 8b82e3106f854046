"""Addresses that are refused when a request is submitted, and again before each delivery."""

import asyncio
from typing import Any

import pytest
from sqlmodel import Session, select

from app.notices import guard
from app.notices.callbacks import check
from app.problems import BusyError, CallbackTargetError
from lethe.signing.keys import generate_key
from models import Callback
from tests.app.api.test_requests import problem, stored
from tests.app.notices.callbacks.conftest import ask, call_back, callbacks, erase
from tests.app.notices.conftest import pass_time, rows
from tests.app.notices.receiver import Receiver, receiving
from tests.installation import Installation
from tests.small import Caller

PUBLIC = "93.184.216.34"
REFUSED = [
    ("own network", "https://10.0.0.1/hook"),
    ("metadata", "https://169.254.169.254/latest"),
    ("IPv4 in IPv6", "https://[::ffff:10.0.0.1]/"),
    ("unencrypted", f"http://{PUBLIC}/"),
    ("port of another service", f"https://{PUBLIC}:25/"),
    ("credentials", f"https://u:p@{PUBLIC}/"),
    ("fragment", f"https://{PUBLIC}/#x"),
    ("another scheme", "file:///etc/passwd"),
    ("no address", "https://nobody.invalid/"),
]


def test_what_may_not_be_called_is_one_problem_and_stores_nothing(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = guard.lookup

    async def lookup(host: str, port: int) -> list[str]:
        if host == "nobody.invalid":
            raise OSError
        return await original(host, port)

    monkeypatch.setattr(guard, "lookup", lookup)
    before = stored(ready)
    for name, url in REFUSED:
        body = problem(ask(ready, url, "r5"), 422, "callback-target")
        assert body["detail"] == check.REFUSED, name  # nobody learns which names exist inside
    malformed: list[Any] = ["", "x" * 2001, 7, ["https://a.example/"]]
    for given in malformed:
        problem(ask(ready, given, "r5"), 422, "body-invalid")
    assert stored(ready) == before
    with Session(ready.services.engine) as session:
        assert session.exec(select(Callback.id)).all() == []
    assert ready.caller.erase_records("r5").status_code == 202


def test_what_webhooks_may_reach_callbacks_may_not(
    ready: Installation, receiver: Receiver
) -> None:
    """An operator's allowance must not let requesters knock at the operator's network."""
    settings = ready.services.settings
    object.__setattr__(settings, "callback_allow", "")
    assert settings.webhook_allowed.networks
    problem(ask(ready, receiver.url, "r5"), 422, "callback-target")


def test_the_address_is_signed_with_the_request(
    ready: Installation, receiver: Receiver
) -> None:
    """Whoever passes a request on cannot put their address into it."""
    caller = ready.caller
    body = (
        b'{"model": "small", "scope": {"level": "sample", "records": ["r5"]}, "callback": "%s"}'
    )
    signed: dict[str, Any] = {}

    def keep(method: str, path: str, **sent: Any) -> Any:
        signed.update(sent)
        return original(method, path, **sent)

    original = caller.http.request
    caller.http.request = keep  # type: ignore[method-assign,assignment]
    good = receiver.url.encode()
    assert caller.signed("POST", "/v1/requests", body % good).status_code == 202
    caller.http.request = original  # type: ignore[method-assign]
    changed = body % good.replace(b"lethe", b"eve")
    answer = original("POST", "/v1/requests", headers=signed["headers"], content=changed)
    assert answer.status_code in (400, 401)
    assert len(callbacks(ready)) == 1


def test_a_name_that_becomes_private_is_not_called(
    ready: Installation, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [[PUBLIC]]

    async def lookup(_host: str, _port: int) -> list[str]:
        return answers[-1]

    monkeypatch.setattr(guard, "lookup", lookup)
    object.__setattr__(ready.services.settings, "callback_allow", "")
    port = receiver.url.split(":")[2].split("/")[0]
    assert ask(ready, f"https://rebinds.example:{port}/", "r5").status_code == 202
    ready.drain()
    for address in ("127.0.0.1", "10.1.2.3", "::1", "169.254.169.254"):
        answers.append([address])
        call_back(ready)
        [row] = rows(ready)  # what webhooks may reach does not count here either
        assert (row.answer, row.attempts) == ("target refused", len(answers) - 1)
        pass_time(ready, days=1)
    assert receiver.seen == []


def test_a_redirect_is_not_followed(ready: Installation, receiver: Receiver) -> None:
    with receiving() as inside:
        erase(ready, receiver, "r5")
        ready.drain()
        receiver.answer(307, location=inside.url)
        call_back(ready)
        assert inside.seen == []
    assert "307" in {row.answer for row in rows(ready)}
    pass_time(ready, seconds=6)
    call_back(ready)
    assert len(receiver.seen) == 2


def test_a_key_has_no_more_callbacks_than_it_may(
    installation: Installation, receiver: Receiver
) -> None:
    installation.ready(decide="review")
    object.__setattr__(installation.services.settings, "callbacks_each", 2)
    first = erase(installation, receiver, "r1")
    erase(installation, receiver, "r2")
    before = stored(installation)
    problem(ask(installation, receiver.url, "r3"), 429, "callback-limit")
    assert stored(installation) == before
    other = Caller(
        installation.caller.http, installation.caller.token, "bob", generate_key("ed25519")
    )
    assert other.register_key().status_code == 201
    body = {"callback": receiver.url}
    assert other.erase_records("r3", fields=body).status_code == 202
    assert (
        installation.caller.signed("DELETE", f"/v1/requests/{first['id']}").status_code == 200
    )
    call_back(installation)
    erase(installation, receiver, "r4")
    object.__setattr__(installation.services.settings, "callbacks_each", 0)
    problem(ask(installation, receiver.url, "r6"), 429, "callback-limit")


def test_sent_again_with_its_key_a_request_has_one_callback(
    ready: Installation, receiver: Receiver
) -> None:
    headers = {"Idempotency-Key": '"once"'}
    first = ask(ready, receiver.url, "r5", headers=headers).json()["id"]
    object.__setattr__(ready.services.settings, "callback_allow", "")  # as if it were gone now
    assert ask(ready, receiver.url, "r5", headers=headers).json()["id"] == first
    assert len(callbacks(ready)) == 1


def test_names_that_never_resolve_hold_few_places(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_host: str, _port: int) -> list[str]:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(guard, "lookup", never)
    monkeypatch.setattr(check, "LOOKUP_S", 0.01)

    async def several(owners: list[str]) -> list[BaseException | None]:
        asked = [check.check(ready.services, one, "https://slow.example/") for one in owners]
        return await asyncio.gather(*asked, return_exceptions=True)

    mine = asyncio.run(several(["alice"] * (check.AT_ONCE + 2)))
    assert sum(isinstance(one, BusyError) for one in mine) == 2
    each = asyncio.run(several([f"key {number}" for number in range(10)]))
    assert not any(isinstance(one, BusyError) for one in each)
    assert not check.asking


def test_a_lookup_has_its_place_until_the_resolver_has_ended(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread goes on when nobody waits any more: of slow names there would be many."""
    monkeypatch.setattr(check, "LOOKUP_S", 0.01)

    async def ask_on() -> None:
        answered = asyncio.Event()

        async def slow(_host: str, _port: int) -> list[str]:
            await answered.wait()
            return [PUBLIC]

        monkeypatch.setattr(guard, "lookup", slow)
        for _ in range(check.AT_ONCE):
            with pytest.raises(CallbackTargetError):
                await check.check(ready.services, "alice", "https://slow.example/")
        with pytest.raises(BusyError):
            await check.check(ready.services, "alice", "https://slow.example/")
        answered.set()
        while check.asking:
            await asyncio.sleep(0)
        await check.check(ready.services, "alice", "https://slow.example/")

    asyncio.run(ask_on())
    assert not check.asking
