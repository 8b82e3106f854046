"""Waiting, played by hand; `test_clients.py` has every other operation, through both clients."""

import pytest

from lethe.client.answers import RequestStatus
from lethe.client.errors import ProblemError, UnreachableError, WaitTimeoutError
from tests.lethe.client.stage import LOST, Stage, answer, shown


def test_waiting_reports_each_state_once_and_ends_with_the_last() -> None:
    stage = Stage(*(shown(s) for s in ("received", "received", "executing", "certified")))
    states: list[str] = []

    def note(status: RequestStatus) -> None:
        states.append(status.state)

    assert stage.play(stage.operations().wait("1", None, note)).state == "certified"
    assert states == ["received", "executing", "certified"]


def test_waiting_passes_every_answer_on_after_the_news_in_it() -> None:
    stage = Stage(*(shown(s) for s in ("received", "received", "certified")))
    heard: list[tuple[str, str]] = []
    waiting = stage.operations().wait(
        "1",
        None,
        lambda status: heard.append(("new", status.state)),
        lambda status: heard.append(("answer", status.state)),
    )
    stage.play(waiting)
    assert heard == [
        ("new", "received"),
        ("answer", "received"),
        ("answer", "received"),
        ("new", "certified"),
        ("answer", "certified"),
    ]


@pytest.mark.parametrize("state", ["certified", "refused", "withdrawn", "failed"])
def test_final_states_end_the_waiting(state: str) -> None:
    stage = Stage(shown(state))
    assert stage.play(stage.operations().wait("1", None, None)).state == state


def test_an_escalated_request_is_still_waited_for() -> None:
    stage = Stage(shown("escalated"), shown("certified"))
    assert stage.play(stage.operations().wait("1", None, None)).state == "certified"


def test_questions_become_rarer_but_never_rare() -> None:
    stage = Stage(*[shown("received")] * 60, shown("certified"))
    stage.play(stage.operations().wait("1", None, None))
    assert stage.pauses[0] == 0.05
    assert stage.pauses == sorted(stage.pauses)
    assert stage.pauses[-1] == 2.0


def test_patience_ends_on_time() -> None:
    stage = Stage(*[shown("executing")] * 100)
    with pytest.raises(WaitTimeoutError, match="after 3 s the request is still executing"):
        stage.play(stage.operations().wait("1", 3.0, None))
    assert sum(stage.pauses) == pytest.approx(3.0)


def test_a_restart_of_the_service_is_waited_for() -> None:
    stage = Stage(shown("received"), *[LOST] * 6, answer(500), answer(503), shown("certified"))
    assert stage.play(stage.operations(tries=2).wait("1", None, None)).state == "certified"


def test_a_service_that_stays_away_is_named_at_the_end() -> None:
    stage = Stage(shown("received"), *[LOST] * 200)
    with pytest.raises(UnreachableError):
        stage.play(stage.operations(tries=1).wait("1", 3.0, None))


def test_a_request_that_does_not_exist_is_not_waited_for() -> None:
    stage = Stage(answer(404))
    with pytest.raises(ProblemError) as error:
        stage.play(stage.operations().wait("1", None, None))
    assert error.value.status == 404
