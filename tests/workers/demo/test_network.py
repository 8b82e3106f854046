"""What the demonstration of a network prints about a request's history."""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lethe.client import Client
from lethe.client.answers import HistoryEvent, Progress, RequestStatus
from workers.demo import network
from workers.demo.network import erase, escalation, wait_until_trained
from workers.demo.plan import Wish
from workers.demo.service import DemoError

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (
            ["received", "executed", "certified"],
            ["events of the log: received → executed → certified"],
        ),
        (
            ["executed", "escalated", "certified"],
            [
                "events of the log: executed → escalated → certified",
                "    escalated: the verifier could not confirm the result; another method follows",
            ],
        ),
    ],
)
def test_events_are_called_events_and_an_escalation_is_explained(
    events: list[str], said: list[str]
) -> None:
    history = tuple(HistoryEvent(f"request.{name}", AT, 0) for name in events)
    status = RequestStatus("", "certified", "demo", None, {}, AT, history, None, None, {})
    assert escalation(status).splitlines() == said


def status(state: str, phase: str = "", done: int = 0) -> RequestStatus:
    progress = Progress(phase, done, 12, "rounds") if phase else None
    path = "/v1/requests/1/certificate" if state == "certified" else None
    return RequestStatus("1", state, "demo", None, {}, AT, (), path, progress, {})


def model(state: str, done: int | None = None) -> dict[str, Any]:
    progress = {"phase": "training", "done": done, "total": 12, "unit": "rounds"}
    return {"state": state, "failure": "odd", "progress": None if done is None else progress}


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip all sleeping."""
    monkeypatch.setattr(network, "POLL_SECONDS", 0)
    monkeypatch.setattr("lethe.cli.text.waiting.Waiting.seconds", 0.0)


def service(**answers: list[Any]) -> Client:
    """Return a service that gives each of these answers once, in order."""
    scripted = {name: iter(given) for name, given in answers.items()}
    calls = {name: lambda *_, name=name, **__: next(scripted[name]) for name in answers}
    return cast(Client, SimpleNamespace(**calls))


def test_the_rounds_of_the_training_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [
        model("registered"),
        model("registered", 0),
        model("registered", 7),
        model("ready"),
    ]
    wait_until_trained(service(model=asked))
    shown = capsys.readouterr()
    assert shown.err.splitlines() == [
        "  model: registered after 0.0 s",
        "  model: registered (training, 0 of 12 rounds done) after 0.0 s",
    ]
    assert shown.out == "  model: trained after 0.0 s\n"
    with pytest.raises(DemoError, match="was not trained: odd"):
        wait_until_trained(service(model=[model("failed")]))


def test_the_rounds_of_an_erasure_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "keep_certificate", lambda *_: "kept")
    told = [
        status("received"),
        status("executing", "recovery", 1),
        status("escalated", "retraining", 3),
        status("verifying", "repetition", 3),
        status("certified"),
    ]
    wish = Wish("client, 3 records", client="c")
    requester = service(submit_erasure=[SimpleNamespace(id="1")], status=told)
    assert erase(Path(), requester, wish).id == "kept"
    assert capsys.readouterr().err.splitlines() == [
        "  client, 3 records: received after 0.0 s",
        "  client, 3 records: executing (recovery, 1 of 12 rounds done) after 0.0 s",
        "  client, 3 records: escalated (retraining, 3 of 12 rounds done) after 0.0 s",
        "  client, 3 records: verifying (repetition, 3 of 12 rounds done) after 0.0 s",
    ]
