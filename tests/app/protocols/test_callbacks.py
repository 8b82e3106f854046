"""Callbacks of controllers and agents: in their specifications' form, by the same outbox."""

import json
import logging
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from sqlmodel import Session, select

from app.ledger.key_rows import key_rows
from app.notices import deliver
from app.notices.sender import Sender
from app.protocols.drp.agents import name_of
from app.protocols.forms import FORMS
from app.service.access.tokens import revoke_named
from lethe.client import verify_callback
from models import BearerToken, Callback, Case, Delivery
from tests.app.notices.callbacks.conftest import callbacks, sent
from tests.app.notices.callbacks.test_rows import database
from tests.app.notices.conftest import ALLOWED, pass_time
from tests.app.notices.receiver import Receiver, receiving
from tests.app.protocols.conftest import DOMAIN
from tests.app.protocols.test_drp import Agent
from tests.app.protocols.test_drp import agent as agent  # a fixture
from tests.app.protocols.test_opendsr import EXAMPLE, ID, Controller, error
from tests.installation import Installation
from tests.workers.jobs.desk.test_people import ANN, EVE, named


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@pytest.fixture
def calling(serving: Installation, receiver: Receiver) -> Installation:
    """A service that may call this machine, and has read its log."""
    object.__setattr__(serving.services.settings, "callback_allow", ALLOWED)
    turn(serving)
    return serving


def turn(installation: Installation) -> None:
    Sender(installation.services, FORMS).turn()


def processor_key(installation: Installation) -> RSAPublicKey:
    pem = installation.caller.http.get("/dsr/certificate").content
    key = x509.load_pem_x509_certificate(pem).public_key()
    assert isinstance(key, RSAPublicKey)
    return key


def statuses(installation: Installation, receiver: Receiver) -> list[str]:
    """Return the statuses of OpenDSR's callbacks, each verified as section 8.8 says."""
    key = processor_key(installation)
    for headers, body in receiver.seen:
        assert headers["x-opendsr-processor-domain"] == DOMAIN
        signature = b64decode(headers["x-opendsr-signature"])
        key.verify(signature, body, PKCS1v15(), SHA256())
        with pytest.raises(InvalidSignature):
            key.verify(
                signature, body.replace(b"pending", b"completed") + b" ", PKCS1v15(), SHA256()
            )
    return [json.loads(body)["request_status"] for _, body in receiver.seen]


def test_a_controller_is_told_each_status_in_the_specifications_form(
    calling: Installation, receiver: Receiver
) -> None:
    caller = calling.caller
    assert caller.register_model(named(), ref="held", decide="review").status_code == 201
    calling.drain()
    controller = Controller(calling)
    made = controller.ask(status_callback_urls=[receiver.url]).json()
    turn(calling)
    [(_, body)] = receiver.seen
    assert json.loads(body) == {
        "controller_id": made["controller_id"],
        "expected_completion_time": made["expected_completion_time"],
        "status_callback_url": receiver.url,
        "subject_request_id": ID,
        "request_status": "pending",
    }
    calling.drain()  # one model is done, one waits
    turn(calling)
    turn(calling)
    assert statuses(calling, receiver) == ["pending", "in_progress"]
    with Session(calling.services.engine) as session:
        ref = session.exec(select(Case.ref)).one()
    assert caller.operator("POST", f"/v1/cases/{ref}/approve").status_code == 200
    calling.drain()
    turn(calling)
    assert statuses(calling, receiver) == ["pending", "in_progress", "completed"]
    assert callbacks(calling) == []
    calling.check()


def test_every_address_is_told_and_a_cancelled_request_ends_them(
    calling: Installation, receiver: Receiver
) -> None:
    controller = Controller(calling)
    urls = [receiver.url, receiver.url + "&second"]
    for _ in range(2):  # the second changes nothing
        assert controller.ask(status_callback_urls=urls).status_code == 201
    turn(calling)
    assert statuses(calling, receiver) == ["pending", "pending"]
    assert controller.call("DELETE", f"/requests/{ID}").status_code == 202
    turn(calling)
    assert statuses(calling, receiver)[2:] == ["cancelled", "cancelled"]
    assert callbacks(calling) == []


def test_a_person_who_is_not_here_is_completed_at_once(
    calling: Installation, receiver: Receiver
) -> None:
    """No entry of the log follows."""
    eve = {"identity_type": "email", "identity_value": EVE, "identity_format": "raw"}
    controller = Controller(calling)
    controller.ask(subject_identities=[eve], status_callback_urls=[receiver.url])
    turn(calling)
    assert statuses(calling, receiver) == ["completed"]
    assert callbacks(calling) == []


def test_a_request_that_follows_anothers_is_told_of_its_end(
    calling: Installation, receiver: Receiver
) -> None:
    assert Controller(calling).ask().status_code == 201
    Controller(calling).ask(status_callback_urls=[receiver.url])
    calling.drain()
    turn(calling)
    assert statuses(calling, receiver) == ["completed"]


def test_a_failed_callback_is_tried_again_with_the_newest_status(
    calling: Installation, receiver: Receiver
) -> None:
    receiver.answer(500)
    Controller(calling).ask(status_callback_urls=[receiver.url])
    turn(calling)
    [known] = callbacks(calling, ref=ID)
    calling.drain()
    pass_time(calling, seconds=6)
    turn(calling)
    assert statuses(calling, receiver) == ["pending", "completed"]
    assert {one["event"] for one in _deliveries(calling, known["id"])} == {"status.changed"}


def _deliveries(installation: Installation, callback: str) -> list[dict[str, Any]]:
    with Session(installation.services.engine) as session:
        rows = session.exec(select(Delivery).where(Delivery.receiver == callback)).all()
    return [row.model_dump() for row in rows]


def test_an_agent_without_a_token_is_told_nothing_more(
    calling: Installation, receiver: Receiver
) -> None:
    controller = Controller(calling)
    name = controller.ask(status_callback_urls=[receiver.url]).json()["controller_id"]
    turn(calling)
    with Session(calling.services.engine) as session:
        revoke_named(session, name)
        session.commit()
    calling.drain()
    turn(calling)
    assert statuses(calling, receiver) == ["pending"]
    assert callbacks(calling) == []


def test_a_worker_that_cannot_sign_tries_again_and_gives_up_in_the_end(
    calling: Installation, receiver: Receiver
) -> None:
    eve = {"identity_type": "email", "identity_value": EVE, "identity_format": "raw"}
    controller = Controller(calling)
    controller.ask(subject_identities=[eve], status_callback_urls=[receiver.url])
    [known] = callbacks(calling)
    object.__setattr__(calling.services.settings, "opendsr_domain", "")
    turn(calling)
    assert [one["answer"] for one in sent(calling, known["id"])] == ["settings"]
    for _ in deliver.SCHEDULE:
        assert len(callbacks(calling)) == 1
        pass_time(calling, days=1)
        turn(calling)
    assert receiver.seen == []
    assert callbacks(calling) == []


def test_an_address_in_the_database_is_told_of_no_other_request(
    calling: Installation, receiver: Receiver
) -> None:
    with receiving() as attacker:
        other = "b7551968-d5d6-44b2-9831-815ac9017798"
        eve = Controller(calling)
        eve.ask(subject_request_id=other, status_callback_urls=[attacker.url])
        Controller(calling).ask(status_callback_urls=[receiver.url])
        with Session(calling.services.engine) as session:
            theirs = session.exec(select(Callback).where(Callback.request == other)).one()
            mine = session.exec(select(Callback).where(Callback.request == ID)).one()
            theirs.request, theirs.owner, theirs.ref = mine.request, mine.owner, "x"
            session.commit()
        calling.drain()
        turn(calling)
        assert attacker.seen == []
        assert statuses(calling, receiver) == ["completed"]


def test_an_agent_has_no_more_callbacks_than_it_may(
    calling: Installation, receiver: Receiver
) -> None:
    object.__setattr__(calling.services.settings, "callbacks_each", 2)
    controller = Controller(calling)
    size = calling.services.ledger.latest().size
    urls = [f"{receiver.url}&{number}" for number in range(3)]
    error(controller.ask(status_callback_urls=urls), 400, "callback-limit")
    assert calling.services.ledger.latest().size == size
    assert controller.ask(status_callback_urls=urls[:2]).status_code == 201


def test_an_authorized_agent_is_told_its_status(agent: Agent, receiver: Receiver) -> None:
    installation = agent.installation
    object.__setattr__(installation.services.settings, "callback_allow", ALLOWED)
    turn(installation)
    found = agent.exercise(status_callback=receiver.url)
    turn(installation)
    assert json.loads(receiver.seen[0][1]) == found
    installation.drain()
    turn(installation)
    said = [json.loads(body) for _, body in receiver.seen]
    assert [one["status"] for one in said] == ["in_progress", "fulfilled"]
    assert said[-1] == agent.status(found["request_id"])
    key = installation.caller.http.get("/v1/callbacks/key").json()["key"]
    for headers, body in receiver.seen:
        assert verify_callback(key, headers, body) == json.loads(body)
        assert ANN.encode() not in body
    assert callbacks(installation) == []


def test_an_agent_whose_key_is_revoked_is_told_nothing_more(
    agent: Agent, receiver: Receiver
) -> None:
    installation = agent.installation
    object.__setattr__(installation.services.settings, "callback_allow", ALLOWED)
    agent.exercise(status_callback=receiver.url)
    turn(installation)
    answer = installation.caller.operator("DELETE", f"/v1/keys/{agent.name}")
    assert answer.status_code in (200, 204), answer.text
    installation.drain()
    turn(installation)
    assert len(receiver.seen) == 1
    assert callbacks(installation) == []


def test_an_agent_that_pairs_while_it_is_called_back_is_told(
    agent: Agent, receiver: Receiver
) -> None:
    """A pairing lists the old token as revoked before its transaction commits the new one."""
    installation = agent.installation
    object.__setattr__(installation.services.settings, "callback_allow", ALLOWED)
    agent.exercise(status_callback=receiver.url)
    turn(installation)
    installation.drain()
    with Session(installation.services.engine) as session:
        old = session.exec(
            select(BearerToken).where(BearerToken.name == name_of(agent.name))
        ).one()
        key_rows(session).revoke(old)
    turn(installation)
    [known] = callbacks(installation)
    assert [one["answer"] for one in sent(installation, known["id"])] == ["busy", "204"]
    assert agent.pair().status_code == 200
    pass_time(installation, seconds=6)
    turn(installation)
    said = [json.loads(body)["status"] for _, body in receiver.seen]
    assert said == ["in_progress", "fulfilled"]
    assert callbacks(installation) == []


def test_addresses_of_agents_are_nowhere_in_clear(
    calling: Installation, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    hidden = "geheim-4711"
    url = f"{receiver.url}&{hidden}"
    with caplog.at_level(logging.DEBUG, logger="app"):
        controller = Controller(calling)
        assert controller.ask(status_callback_urls=[url]).status_code == 201
        bad = controller.ask(status_callback_urls=[f"https://10.1.2.3/{hidden}"])
        error(bad, 400, "InvalidCallback")
        tasks = repr(calling.dispatcher.nudges)
        receiver.answer(500)
        turn(calling)
        stored = database(calling)
        [known] = callbacks(calling)
        log = json.dumps([known, *sent(calling, known["id"])])
        calling.drain()
        pass_time(calling, seconds=6)
        turn(calling)
    metrics = calling.caller.operator("GET", "/metrics").text
    for place in (bad.text, tasks, stored, log, metrics, caplog.text, database(calling)):
        assert hidden not in place
        assert "/hook" not in place
    assert statuses(calling, receiver) == ["pending", "completed"]
    assert EXAMPLE["subject_request_id"] == ID
