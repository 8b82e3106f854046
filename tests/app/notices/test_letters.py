"""Mail to persons and officers: real cases, a real SMTP server, and no address anywhere else."""

import string
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, get_args
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import text
from sqlmodel import Session, select

from app.notices import alarms, deliver, letters, mailings, outbox
from app.notices.sender import Sender
from app.reconcile.model_events import model_events
from app.schemas.people import NewCase
from app.schemas.requests import State
from app.service.desk import queue
from lethe.words.texts import LANGUAGES, Language, day_in, texts
from models import Case, Certificate, ErasureRequest, RequestEvent
from tests.app.notices.callbacks.conftest import callbacks
from tests.app.notices.conftest import ALLOWED, add, rows, turn
from tests.app.notices.receiver import Receiver
from tests.app.notices.test_mail import FROM, Inbox, server
from tests.installation import Installation
from tests.workers.jobs.desk.test_cases import opened, shown
from tests.workers.jobs.desk.test_people import ANN, EVE, named
from tests.workers.jobs.desk.test_people import ready as registered
from tests.workers.jobs.desk.test_review import later

ADDRESS, OFFICER, SECOND = "ann@example.com", "dpo@example.org", "deputy@example.org"


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def mail(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    monkeypatch.setattr(mailings, "DIGEST_HOUR", 24)  # no digest, whatever the time is
    with server(inbox) as port:
        yield {
            "smtp_url": f"smtp+plain://127.0.0.1:{port}",
            "mail_from": FROM,
            "notice_mail": f"{OFFICER}, {SECOND}",
            "callback_allow": ALLOWED,
        }


def read(inbox: Inbox) -> list[EmailMessage]:
    """Return what came since the last call."""
    found = [message_from_bytes(one.content, policy=policy.default) for one in inbox.taken]
    inbox.taken.clear()
    return found


def _day(at: str, language: Language = "en", zone: tzinfo = UTC) -> str:
    """Return the day of a time as the mails say it."""
    return day_in(language, datetime.fromisoformat(at).astimezone(zone).date())


def reviewed(installation: Installation) -> None:
    """Fit a model whose requests wait for an officer."""
    assert installation.caller.register_key().status_code == 201
    made = installation.caller.register_model(named(), ref="one", decide="review")
    assert made.status_code == 201, made.text
    installation.drain()


def test_a_person_hears_of_receipt_and_answer_and_the_log_of_each_use_of_the_address(
    installation: Installation, inbox: Inbox
) -> None:
    registered(installation, "one", "two", r99=EVE)
    turn(installation)
    case = opened(installation, ANN, contact=ADDRESS).json()
    turn(installation)
    [received] = read(inbox)
    assert (received["To"], received["From"]) == (ADDRESS, FROM)
    assert case["ref"] in received["Subject"]
    assert _day(case["due_at"]) in received.get_content()
    installation.drain()
    turn(installation)
    [answered] = read(inbox)
    said = answered.get_content()
    done = shown(installation, case["ref"]).json()
    for part in done["parts"]:
        with Session(installation.services.engine) as session:
            index = session.get_one(Certificate, part["request"]).log_index
        assert (
            f"Model {part['model']}: your data was erased; the certificate is entry {index} "
            in said
        )
    assert "http://testserver/verify" in said
    turn(installation)
    assert read(inbox) == []
    services = installation.services
    assert len(model_events(services.ledger, case["parts"][0]["model"], "case.contact")) == 2
    with services.engine.connect() as connection:
        stored = str(connection.execute(text("SELECT * FROM deliveries")).all())
    assert ADDRESS not in stored
    assert OFFICER not in stored
    installation.check()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_a_mail_names_the_day_that_the_page_shows(
    installation: Installation, inbox: Inbox, language: Language, zone: str
) -> None:
    """At every hour one of the two zones is on another day than UTC, in which times are kept."""
    for name, value in (("notice_language", language), ("time_zone", zone)):
        object.__setattr__(installation.services.settings, name, value)
    reviewed(installation)
    turn(installation)
    case = opened(installation, ANN, contact=ADDRESS).json()
    turn(installation)
    [received] = read(inbox)
    said = received.get_content()
    assert _day(case["due_at"], language, ZoneInfo(zone)) in said
    assert _day(case["received_at"], language, ZoneInfo(zone)) in said


@pytest.mark.parametrize("space", [" ", "\u00a0", "\t"])
def test_white_space_around_an_address_keeps_nobody_from_hearing(space: str) -> None:
    person = {"kind": "email", "sha256": "0" * 64}
    sent = {"person": person, "ticket": "T-1", "contact": f"{space}{ADDRESS}{space}"}
    assert NewCase.model_validate(sent).contact == ADDRESS


@pytest.mark.parametrize("page", [1, 2, 3])
def test_after_an_outage_the_oldest_case_too_gets_its_mail(
    installation: Installation,
    inbox: Inbox,
    monkeypatch: pytest.MonkeyPatch,
    page: int,
) -> None:
    """A case without a contact is among them, and one of the day before is none of them."""
    registered(installation, "one", "two", r99=EVE)
    turn(installation)
    monkeypatch.setattr(mailings, "AT_ONCE", 2)
    monkeypatch.setattr(outbox, "PAGE", page)
    nobody = "nobody@example.org"
    refs = [opened(installation, nobody, contact=ADDRESS).json()["ref"] for _ in range(3)]
    opened(installation, nobody)
    refs += [opened(installation, nobody, contact=ADDRESS).json()["ref"] for _ in range(3)]
    for _ in range(2):
        turn(installation)
    told = [str(one["Subject"]) for one in read(inbox)]
    assert sorted(ref for ref in refs for one in told if ref in one) == sorted(refs)


def test_an_extension_and_a_refusal_come_with_reason_and_remedies(
    installation: Installation, inbox: Inbox
) -> None:
    reviewed(installation)
    turn(installation)
    case = opened(installation, ANN, contact=ADDRESS).json()
    turn(installation)
    read(inbox)
    for what, reason in (("extend", "complexity"), ("refuse", "legal-claims")):
        path = f"/v1/cases/{case['ref']}/{what}"
        answer = installation.caller.operator("POST", path, json={"reason": reason})
        assert answer.status_code == 200, answer.text
        turn(installation)
    extended, refused = [one.get_content() for one in read(inbox)]
    timeline = shown(installation, case["ref"]).json()["timeline"]
    [due] = [one["detail"]["due_at"] for one in timeline if one["event"] == "request.extended"]
    assert "Reason: the request is complex (GDPR Art. 12(3))" in extended
    assert due > case["due_at"]
    assert _day(due) in extended
    assert (
        "refused. Reason: the data is needed for legal claims (GDPR Art. 17(3)(e))" in refused
    )
    for said in (extended, refused):
        assert "complain to a supervisory authority" in said
        assert "test " not in said.lower().replace("testserver", "")  # no officer's name


def test_a_refusal_under_another_name_is_not_told(
    installation: Installation, inbox: Inbox
) -> None:
    reviewed(installation)
    turn(installation)
    case = opened(installation, ANN, contact=ADDRESS).json()
    turn(installation)
    read(inbox)
    path = f"/v1/cases/{case['ref']}/refuse"
    refused = installation.caller.operator("POST", path, json={"reason": "legal-claims"})
    assert refused.status_code == 200
    with Session(installation.services.engine) as session:
        named = "UPDATE request_events SET event = 'request.withdrawn' "
        session.connection().execute(text(f"{named} WHERE event = 'request.refused'"))
        session.commit()
    turn(installation)
    assert read(inbox) == []


def test_who_is_not_found_is_answered_at_once(installation: Installation, inbox: Inbox) -> None:
    registered(installation, "one")
    turn(installation)
    opened(installation, "x@y.z", contact=ADDRESS)
    turn(installation)
    [answered] = read(inbox)
    assert "nothing about you was found" in answered.get_content()
    assert {(row.event, row.answer) for row in rows(installation)} == {
        ("mail.received", "answered"),
        ("mail.answered", "accepted"),
    }


def test_a_contact_that_is_no_address_or_was_destroyed_gets_nothing(
    installation: Installation, inbox: Inbox
) -> None:
    registered(installation, "one", "two")
    turn(installation)
    opened(installation, ANN)  # a street
    closed = opened(installation, "x@y.z", contact=ADDRESS).json()
    path = f"/v1/cases/{closed['ref']}/close"
    assert installation.caller.operator("POST", path).status_code == 200
    turn(installation)
    assert read(inbox) == []
    answers = {row.answer for row in rows(installation)}
    assert "no e-mail address" in answers
    assert not model_events(installation.services.ledger, "one", "case.contact")


def test_an_address_that_somebody_else_wrote_gets_nothing(
    installation: Installation, inbox: Inbox
) -> None:
    registered(installation, "one")
    turn(installation)
    opened(installation, ANN, contact=ADDRESS)
    with Session(installation.services.engine) as session:
        case = session.exec(select(Case)).one()
        case.contact = "thief@example.net"
        session.add(case)
        session.commit()
    turn(installation)
    assert read(inbox) == []
    [row] = rows(installation)
    assert (row.state, row.answer) == ("waiting", "people-changed")


def test_an_end_that_somebody_else_wrote_is_not_told(
    installation: Installation, inbox: Inbox
) -> None:
    registered(installation, "one")
    turn(installation)
    opened(installation, ANN, contact=ADDRESS)
    turn(installation)
    read(inbox)
    installation.drain()
    with Session(installation.services.engine) as session:
        row = session.exec(
            select(RequestEvent).where(RequestEvent.event == "request.certified")
        ).one()
        row.payload = {**row.payload, "certificate": 1}
        session.add(row)
        session.commit()
    turn(installation)
    assert read(inbox) == []
    assert "not as logged" in {row.answer for row in rows(installation)}


def test_officers_get_one_digest_a_day_if_there_is_something(
    installation: Installation, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    reviewed(installation)
    monkeypatch.setattr(mailings, "DIGEST_HOUR", 0)
    case = opened(installation, ANN).json()
    for _ in range(2):
        turn(installation)
    found = read(inbox)
    assert {one["To"] for one in found} == {OFFICER, SECOND}
    assert len(found) == 2
    assert found[0]["Subject"] == "Lethe: requests that need attention: 1"
    said = found[0].get_content()
    assert "Awaiting review: 1" in said
    with Session(installation.services.engine) as session:
        ref = session.exec(select(ErasureRequest.ref)).one()
    due = case["due_at"]
    assert f"{ref}  Awaits review, due {due[:10]} {due[11:16]} UTC" in said


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_state_of_a_digest_has_words(language: Language) -> None:
    """Officers read the console's words in their mail, and no codes of the API."""
    known = texts(language).sections["state"]
    assert known.keys() == {*get_args(State), queue.ANSWERED}
    assert not set(known) & set(known.values())


def test_a_digest_names_a_case_that_follows_an_earlier_one(
    installation: Installation, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a deadline of its own, and nothing else reminds of it."""
    reviewed(installation)
    monkeypatch.setattr(mailings, "DIGEST_HOUR", 0)
    with later(monkeypatch, days=-40):
        opened(installation, ANN)
        follower = opened(installation, ANN).json()
    turn(installation)
    said = read(inbox)[0].get_content()
    due = f"{follower['due_at'][:10]} {follower['due_at'][11:16]} UTC"
    assert f"{follower['ref']}  Awaits review, due {due}" in said


def test_a_digest_names_webhooks_and_callbacks_that_were_given_up(
    installation: Installation,
    inbox: Inbox,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registered(installation, "one")
    turn(installation)
    monkeypatch.setattr(deliver, "SCHEDULE", ())
    hook = add(installation, receiver, "request.received")["id"]
    for _ in range(2):
        receiver.answer(500)
    fields = {"model": "one", "callback": receiver.url}
    asked = installation.caller.erase_records("r1", fields=fields)
    assert asked.status_code == 202, asked.text
    [called] = callbacks(installation)
    installation.drain()
    turn(installation)
    assert {(row.receiver, row.state) for row in rows(installation)} == {
        (hook, "failed"),
        (called["id"], "failed"),
    }
    assert callbacks(installation) == []  # its address is destroyed: only the mail names it
    monkeypatch.setattr(mailings, "DIGEST_HOUR", 0)
    turn(installation)
    mailed = read(inbox)[0]
    assert mailed["Subject"] == "Lethe: deliveries that failed: 2"
    said = mailed.get_content().replace("\r\n", "\n")
    assert f"Webhook deliveries that failed in the last day: 1\n  {hook}  1\n" in said
    assert "agents that failed in the last day: 1\n" in said
    assert f"  {called['id']}  1\n" in said
    assert receiver.url not in said


def test_no_digest_of_nothing_and_none_for_who_left(
    installation: Installation, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailings, "DIGEST_HOUR", 0)
    turn(installation)
    assert read(inbox) == []
    assert {row.answer for row in rows(installation)} == {"nothing to say"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_alarms_come_at_once_and_once_a_day(
    installation: Installation, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    object.__setattr__(installation.services.settings, "notice_language", language)
    with installation.services.engine.begin() as connection:
        connection.execute(text("UPDATE bearer_tokens SET scope = 'auditor'"))
    for _ in range(2):
        Sender(installation.services).turn()
    found = read(inbox)
    assert sorted(one["To"] for one in found) == sorted((OFFICER, SECOND))
    assert "Lethe" in found[0]["Subject"]
    assert "bearer-tokens-row" in found[0].get_content()


def test_a_recipient_who_is_refused_for_good_is_not_asked_again(
    installation: Installation, inbox: Inbox
) -> None:
    inbox.reply = "550 no such user"
    registered(installation, "one")
    turn(installation)
    opened(installation, ANN, contact=ADDRESS)
    turn(installation)
    [row] = rows(installation)
    assert (row.state, row.answer, row.attempts) == ("failed", "mail refused", 1)


def places(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_says_the_same(language: str) -> None:
    english, other = letters.words("en"), letters.words(language)
    assert {name: set(section) for name, section in english.items()} == {
        name: set(section) for name, section in other.items()
    }
    for name, section in english.items():
        for key, template in section.items():
            assert places(other[name][key]) == places(template), (name, key)
    assert {*alarms.ROWS.values(), alarms.GUARD} <= set(other["alarm"])
