"""Tokens and agents' keys that are revoked while a call of theirs waits for the log's lock."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from sqlalchemy.engine import Engine
from sqlmodel import Session, select

from app.ledger.authority import act_for, own_authority, require_authority
from app.problems import UnauthorizedError
from app.protocols.drp.agents import name_of
from app.service.access import keys
from app.service.access.tokens import revoke_named
from app.service.context import Services
from models import BearerToken
from tests.app.console.conftest import Desk
from tests.app.console.conftest import desk as desk
from tests.app.console.conftest import installation as installation
from tests.app.console.reader import Browser
from tests.app.protocols.conftest import processor_key as processor_key
from tests.app.protocols.conftest import serving as serving
from tests.app.protocols.test_drp import EXAMPLE, Agent
from tests.app.protocols.test_drp import agent as agent
from tests.app.protocols.test_opendsr import Controller
from tests.installation import make_token
from tests.small import Caller


def revoked_meanwhile(
    services: Services, monkeypatch: pytest.MonkeyPatch, revoke: Callable[[], object]
) -> None:
    """Have `revoke` run once, before the next transaction begins."""
    ledger, done = services.ledger, list[str]()

    def first(honest: Callable[..., Any], *call: Any) -> Any:
        if not done:
            done.append("revoked")
            revoke()
        return honest(*call)

    for name in ("turn", "beside"):  # notices on PostgreSQL need no turn
        monkeypatch.setattr(ledger, name, partial(first, getattr(ledger, name)))


def end_token(services: Services, name: str) -> None:
    with Session(services.engine) as session:
        revoke_named(session, name)
        session.commit()


def size(services: Services) -> int:
    with services.reading() as session:
        return services.ledger.size(session)


def approve(caller: Caller, case: str) -> int:
    return caller.operator("POST", f"/v1/cases/{case}/approve").status_code


def register(caller: Caller, _: str) -> int:
    return caller.register_model(ref="another").status_code


def subscribe(caller: Caller, _: str) -> int:
    wanted = {"url": "https://1.1.1.1/x", "events": ["request.received"]}
    return caller.operator("POST", "/v1/webhooks", json=wanted).status_code


@pytest.mark.parametrize("act", [approve, register, subscribe])
@pytest.mark.parametrize("when", ["before", "never"])
def test_a_token_that_is_revoked_meanwhile_changes_nothing(
    act: Callable[[Caller, str], int],
    when: str,
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    services = desk.installation.services
    token = make_token(services, "operator", "leaver")
    caller, before = replace(desk.installation.caller, token=token), size(services)
    if when == "before":
        revoked_meanwhile(services, monkeypatch, lambda: end_token(services, "leaver"))
    assert (act(caller, desk.case) == 401) == (when == "before")
    changes = act is not subscribe and when == "never"
    assert (size(services) > before) == changes


def test_a_session_ends_with_its_token_before_its_decision(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = desk.installation.services
    officer = Browser(desk.installation.caller.http, make_token(services, "officer", "leaver"))
    address, before = f"/console/cases/{desk.case}/approve", size(services)
    officer.get(address)
    revoked_meanwhile(services, monkeypatch, lambda: end_token(services, "leaver"))
    done = officer.send(address, address)
    assert (done.url.path, size(services)) == ("/console/sign-in", before)


@pytest.mark.parametrize("what", ["key", "token"])
def test_an_agent_that_is_revoked_meanwhile_opens_no_case(
    what: str, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = agent.installation.services
    before, message = size(services), agent.sealed(agent.claims(**EXAMPLE))

    def revoke() -> None:
        if what == "key":
            keys.revoke(services, agent.name)
        else:
            end_token(services, name_of(agent.name))

    revoked_meanwhile(services, monkeypatch, revoke)
    answer = agent.call("POST", body=message)
    assert answer.status_code in (401, 403)
    assert size(services) == before


def test_a_controller_whose_token_is_revoked_meanwhile_opens_no_case(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller, services = Controller(serving), serving.services
    with services.reading() as session:
        query = select(BearerToken.name).where(BearerToken.scope == "agent")
        name, before = session.exec(query).one(), size(services)
    revoked_meanwhile(services, monkeypatch, lambda: end_token(services, name))
    assert controller.ask().status_code == 401
    assert size(services) == before


def test_what_a_call_is_checked_by_ends_with_it(engine: Engine) -> None:
    def refuse(_: Session) -> None:
        raise UnauthorizedError("revoked")

    with Session(engine) as session:
        with own_authority():
            act_for(refuse)
            with pytest.raises(UnauthorizedError):
                require_authority(session)
        require_authority(session)
