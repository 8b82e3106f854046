"""A receiver that is not reached, or slow, has one share of a turn, and holds up nobody."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import Session

from app.notices import deliver, endpoints, events, letters, mail, post
from app.notices.callbacks import rows as rows_of_callbacks
from app.notices.callbacks.form import CallbackMessage
from app.notices.notice import delivery_id
from models import Delivery
from models.database.types import clock
from tests.app.notices.conftest import rows
from tests.installation import Installation

MANY = 30


def webhook(installation: Installation, name: str) -> str:
    url = f"https://{name}.example/x"
    return endpoints.add(installation.services, url, [events.TEST], None, "v1", "op").id


def owe(
    installation: Installation, receiver: str, abouts: list[str], event: str, minutes: int
) -> None:
    with Session(installation.services.engine) as session:
        at = clock(session) - timedelta(minutes=minutes)
        for about in abouts:
            made = delivery_id(installation.services, receiver, event, about)
            session.add(
                Delivery(
                    id=made,
                    receiver=receiver,
                    event=event,
                    about=about,
                    state=events.WAITING,
                    next_at=at,
                    created_at=at,
                )
            )
        session.commit()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the receivers that were called: `dead` is not reached, `ill` answers 500."""
    made: list[str] = []

    def answer(_settings: object, url: str, _headers: Mapping[str, str], _body: bytes) -> Any:
        name = url.split("/")[2].removesuffix(".example")
        made.append(name)
        if name.endswith("dead"):
            raise post.UnreachableError("timeout")
        return post.Answer(500 if name == "ill" else 204, 0)

    def written(*_: object) -> None:
        made.append("mail")

    monkeypatch.setattr(post, "check", lambda *_: None)
    monkeypatch.setattr(post, "post", answer)
    monkeypatch.setattr(letters, "write", lambda *_: None)
    monkeypatch.setattr(mail, "send", written)
    return made


def test_a_dead_receiver_costs_one_attempt_and_holds_up_nobody(
    ready: Installation, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "AT_ONCE", 10)
    dead, good = webhook(ready, "dead"), webhook(ready, "good")
    owe(ready, dead, [f"t{n}@2026-11-24" for n in range(MANY)], events.TEST, 10)
    owe(ready, good, ["t@2026-11-24"], events.TEST, 9)
    owe(ready, events.PERSON, ["a case"], events.ANSWERED_MAIL, 8)
    assert deliver.run(ready.services) == 3
    assert sorted(asked) == ["dead", "good", "mail"]
    waiting = [row for row in rows(ready) if row.state == events.WAITING]
    assert {row.receiver for row in waiting} == {dead}
    assert len(waiting) == MANY
    [tried] = [row for row in waiting if row.attempts]
    assert {row.next_at for row in waiting} == {tried.next_at}


def test_mail_comes_first_and_of_a_receivers_its_alarms(
    ready: Installation, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "AT_ONCE", 2)
    good = webhook(ready, "good")
    owe(ready, good, ["t@2026-11-24"], events.TEST, 10)
    owe(ready, good, ["keys@2026-11-24"], events.ALARM, 8)
    owe(ready, f"{events.OFFICER}x", ["1"], events.ALARM_MAIL, 7)
    with ready.services.reading() as session:
        letter, (first, second) = deliver.due_by_receiver(session)
        assert session.get_one(Delivery, letter[0]).event == events.ALARM_MAIL
        assert session.get_one(Delivery, first).event == events.ALARM
        assert session.get_one(Delivery, second).event == events.TEST


def test_a_slow_receiver_has_no_more_than_its_share_of_a_turn(
    ready: Installation, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ill = webhook(ready, "ill")
    owe(ready, ill, [f"t{n}@2026-11-24" for n in range(5)], events.TEST, 10)
    monkeypatch.setattr(deliver, "SHARE_S", -1.0)
    assert deliver.run(ready.services) == 0
    monkeypatch.setattr(deliver, "SHARE_S", 3600.0)
    assert deliver.run(ready.services) == 5  # it answers: each notice is tried
    assert asked == ["ill"] * 5


def follow(installation: Installation, owner: str, names: list[str]) -> None:
    for name in names:
        url = f"https://{name}.example/x"
        # Nothing of the log is followed: the delivery that is due at once is enough.
        rows_of_callbacks.follow(
            installation.services, "test", owner, f"{owner} {name}", [url], lambda _: []
        )


def test_callbacks_of_one_key_delay_neither_others_nor_webhooks(
    ready: Installation, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key with many addresses that are not reached has one attempt in a turn of its own."""

    def form(*_: object) -> CallbackMessage:
        return CallbackMessage({}, b"{}", "state", False)

    monkeypatch.setattr(deliver, "AT_ONCE", 2)
    follow(ready, "eve", [f"{number}.dead" for number in range(MANY)])
    follow(ready, "alice", ["good"])
    owe(ready, webhook(ready, "good"), ["t@2026-11-24"], events.TEST, 9)
    assert deliver.run(ready.services) == 1  # the webhook: callbacks have a thread of their own
    assert asked == ["good"]
    asked.clear()
    assert deliver.run(ready.services, {"test": form}) == 2
    assert sorted(name.partition(".")[2] or name for name in asked) == ["dead", "good"]
    told = {row.state: row.attempts for row in rows(ready) if row.lane is not None}
    assert told == {"waiting": told["waiting"], "delivered": 1}


def test_an_address_that_fails_does_not_delay_others_of_its_key(
    ready: Installation, asked: list[str]
) -> None:
    def form(*_: object) -> CallbackMessage:
        return CallbackMessage({}, b"{}", "state", False)

    follow(ready, "alice", ["dead", "good"])
    for _ in range(2):
        deliver.run(ready.services, {"test": form})
    assert asked == ["dead", "good"]
