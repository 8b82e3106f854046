"""What the commands print of a case: acts on several models once, fields in words."""

from typing import Any

import httpx2
import pytest
from click.testing import CliRunner

from lethe.cli.case import case
from lethe.cli.text.case import print_case
from lethe.client import Client
from lethe.words.timeline import acts
from tests.lethe.cli.test_case import REF
from tests.lethe.cli.test_webhook import BASE, TOKEN

AT, LATER = "2026-11-23T18:45:18Z", "2026-11-24T10:02:11Z"


def item(model: str, event: str, index: int, at: str = AT, **detail: str) -> dict[str, Any]:
    return {"at": at, "model": model, "event": event, "log_index": index, "detail": detail}


def part(model: str, outcome: str, state: str | None) -> dict[str, Any]:
    return {
        "model": model,
        "outcome": outcome,
        "state": state,
        "records": 2,
        "request": None,
        "assignee": None,
        "certificate": None,
        "held_out_removed": 0,
    }


def shown(*timeline: dict[str, Any], parts: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {
        "ref": REF,
        "state": "open",
        "due_at": "2026-12-23T18:45:18Z",
        "days_left": 29,
        "overdue": False,
        "confirm_by": None,
        "opened_by": "alice",
        "holds": [],
        "parts": list(parts),
        "timeline": list(timeline),
    }


def test_what_was_done_on_several_models_is_printed_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    timeline = [
        item("churn", "request.received", 9),
        item("churn", "case.opened", 10),
        item("credit", "request.received", 11),
        item("credit", "case.opened", 12),
        item("churn", "request.extended", 13, LATER, due_at="2027-02-23T18:45:18Z"),
    ]
    print_case(shown(*timeline), as_json=False)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[4:] == [
        f"{AT}  churn, credit: request.received, log entries 9, 11",
        f"{AT}  churn, credit: case.opened, log entries 10, 12",
        f"{LATER}  churn: request.extended, log entry 13",
        "new deadline: 2027-02-23T18:45:18Z",
    ]


def test_acts_that_differ_stay_apart() -> None:
    notes = [
        item("churn", "request.noted", 1, note="one"),
        item("churn", "request.noted", 2, note="one"),
        item("credit", "request.noted", 3, note="other"),
        item("credit", "request.noted", 4, LATER, note="one"),
    ]
    assert [act.entries for act in acts(notes)] == [[1], [2], [3], [4]]
    assert [act.models for act in acts(notes)] == [["churn"], ["churn"], ["credit"], ["credit"]]


def test_members_of_details_are_printed_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("due_at", "registered_by", "issued_by", "imported_by")
    print_case(shown(item("churn", "case", 1, **dict.fromkeys(names, "x"))), as_json=False)
    printed = capsys.readouterr().out
    assert "key registered by: x" in printed
    assert not [name for name in names if name in printed]


def test_a_refusal_says_what_it_did_not_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = (part("churn", "refused", "refused"), part("credit", "in progress", "executing"))

    class Inside(Client):
        def __init__(self, base: str, **options: Any) -> None:
            answer = httpx2.Response(200, json=shown(parts=parts))
            transport = httpx2.MockTransport(lambda request: answer)
            super().__init__(base, transport=transport, **options)

    monkeypatch.setattr("lethe.client.Client", Inside)
    environment = {"LETHE_URL": BASE, "LETHE_TOKEN": TOKEN}
    words = ["refuse", REF, "--reason", "legal-claims"]
    done = CliRunner().invoke(case, words, env=environment)
    assert done.exit_code == 0, done.output
    assert done.stderr == "not refused, and still in progress: credit (executing)\n"
