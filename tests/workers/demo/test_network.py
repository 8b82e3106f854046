"""What the demonstration of a network says of a request's way."""

from datetime import UTC, datetime

import pytest

from app.client.answers import HistoryEvent, RequestStatus
from workers.demo.network import _climb

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
                "    escalated: a method's result could not be shown, another method follows",
            ],
        ),
    ],
)
def test_events_are_called_events_and_a_climb_is_explained(
    events: list[str], said: list[str]
) -> None:
    history = tuple(HistoryEvent(f"request.{name}", AT, 0) for name in events)
    status = RequestStatus("", "certified", "demo", None, {}, AT, history, None, None, {})
    assert _climb(status).splitlines() == said
