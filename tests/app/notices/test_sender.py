"""The sender's thread: it goes on after an error, and ends when it is told."""

import logging
import threading

import pytest

from app.notices import deliver, outbox
from app.notices.sender import Sender
from tests.app.notices.conftest import add
from tests.app.notices.receiver import Receiver
from tests.installation import Installation


def test_an_error_of_one_turn_is_named_and_the_next_one_sends(
    ready: Installation,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    add(ready, receiver, "request.received")
    ready.caller.erase_records("r5")
    original, turns, done = deliver.run, [], threading.Event()

    def failing(services: object) -> int:
        turns.append(1)
        if len(turns) == 1:
            raise ValueError("a row: geheim")
        made = original(ready.services)
        done.set()
        return made

    monkeypatch.setattr(deliver, "run", failing)
    object.__setattr__(ready.services.settings, "sweep_seconds", 0.01)
    sender = Sender(ready.services)
    with caplog.at_level(logging.ERROR):
        sender.start()
        assert done.wait(60)
        sender.stop()
    assert len(receiver.seen) == 1
    assert "a turn ended with ValueError" in caplog.text
    assert "geheim" not in caplog.text


def test_what_is_due_is_sent_although_the_log_cannot_be_read_on(
    ready: Installation, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(ready, receiver, "request.received")
    ready.caller.erase_records("r5")
    while outbox.read_on(ready.services):
        pass

    def damaged(_: object) -> bool:
        raise ValueError("a row cannot be opened")

    monkeypatch.setattr(outbox, "read_on", damaged)
    with pytest.raises(ValueError, match="cannot be opened"):
        Sender(ready.services).follow()
    assert len(receiver.seen) == 1


def test_more_than_one_share_goes_in_one_turn(
    ready: Installation, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "EACH", 2)
    add(ready, receiver, "request.received")
    for number in range(5):
        ready.caller.erase_records(f"r{number}")
    Sender(ready.services).turn()
    assert len(receiver.seen) == 5
