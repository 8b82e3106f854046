"""What somebody who waits is shown: a line rewritten on a terminal, few lines in a file."""

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from lethe.cli.text.waiting import SECONDS, Passing, Waiting, working
from lethe.client.answers import Progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def at(phase: str, done: int, total: int = 4) -> Progress:
    return Progress(phase, done, total, "rounds")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def make(columns: int) -> None:
        monkeypatch.setattr("lethe.cli.text.waiting.on_terminal", lambda: True)
        monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((columns, 24)))

    return make


def test_a_file_gets_a_line_for_what_changes_and_rarely_one_for_a_round(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    with Waiting("one", clock) as waiting:
        waiting.tell("received")
        waiting.tell("executing")
        clock.now += 1
        waiting.tell("executing", at("recovery", 0))
        waiting.tell("executing", at("recovery", 1))
        clock.now += SECONDS
        waiting.tell("executing", at("recovery", 1 + 1))
        waiting.tell("executing", at("recovery", 3))
        waiting.tell("executing")
        waiting.tell("executing", at("retraining", 0))
        clock.now += SECONDS
        waiting.tell("executing", at("retraining", 0))
    assert waiting.seconds == 1 + 2 * SECONDS
    shown = capsys.readouterr()
    assert shown.err.splitlines() == [
        "  one: received after 0.0 s",
        "  one: executing after 0.0 s",
        "  one: executing (recovery, 0 of 4 rounds done) after 1.0 s",
        "  one: executing (recovery, 2 of 4 rounds done) after 31.0 s",
        "  one: executing (retraining, 0 of 4 rounds done) after 31.0 s",
        "  one: executing (retraining, 0 of 4 rounds done) after 61.0 s",
    ]
    assert shown.out == ""


def test_a_terminal_has_one_line_and_none_in_the_end(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[int], None]
) -> None:
    terminal(100)
    with suppress(KeyboardInterrupt), Waiting("one", Clock()) as waiting:
        waiting.tell("executing", at("recovery", 1))
        waiting.tell("certified")
        raise KeyboardInterrupt
    bar, state, cleared, end = capsys.readouterr().err.split("\r")[1:]
    assert bar == "  | one: executing, recovery [##--------] 1/4 rounds, 0 s"
    assert state == "  | one: certified, 0 s".ljust(len(bar))
    assert cleared == " " * len("  | one: certified, 0 s")
    assert end == ""


def test_a_line_never_wraps(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[int], None]
) -> None:
    terminal(20)
    with Waiting("a very long name", Clock()) as waiting:
        waiting.tell("executing", at("recovery", 4))
    assert max(map(len, capsys.readouterr().err.split("\r"))) == 19


@pytest.mark.parametrize(
    ("done", "total", "bar"), [(0, 0, "-" * 10), (9, 4, "#" * 10), (-1, 4, "-" * 10)]
)
def test_a_service_that_counts_oddly_breaks_no_bar(
    done: int,
    total: int,
    bar: str,
    capsys: pytest.CaptureFixture[str],
    terminal: Callable[[int], None],
) -> None:
    terminal(100)
    with Waiting("one", Clock()) as waiting:
        waiting.tell("executing", at("recovery", done, total))
    assert f"recovery [{bar}] {done}/{total} rounds" in capsys.readouterr().err


def test_what_a_demonstration_shows_fits_into_eighty_columns(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[int], None]
) -> None:
    terminal(80)
    with Waiting("client, 302 records", Clock()) as waiting:
        waiting.tell("escalated", at("retraining", 10, 12))
    bar = "  | client, 302 records: escalated, retraining [########--] 10/12 rounds, 0 s"
    assert bar in capsys.readouterr().err


def test_a_file_gets_a_line_now_and_then_though_nothing_is_known_of_the_progress(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    with Waiting("one", clock) as waiting:
        for _ in range(70):
            waiting.tell("registered")
            clock.now += 1
        waiting.tell("ready")
    assert capsys.readouterr().err.splitlines() == [
        "  one: registered after 0.0 s",
        "  one: registered after 30.0 s",
        "  one: registered after 60.0 s",
        "  one: ready after 70.0 s",
    ]


def test_a_file_gets_a_line_now_and_then_on_what_is_read_or_sent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    passing = Passing("sending", clock)
    clock.now += 1000  # what went before is not counted
    for done in range(1, 101):
        passing.tell(done, 100)
        clock.now += 0.5
    passing.tell(1, 100)  # again: a new beginning
    passing.tell(100, 100)
    assert capsys.readouterr().err == "  sending: 61 % after 30 s\n"
    unknown = Passing("reading", clock)
    unknown.tell(1, 0)
    clock.now += SECONDS
    unknown.tell(12_345, 0)
    assert capsys.readouterr().err == "  reading: 12,345 after 30 s\n"


def test_a_long_computation_says_that_it_goes_on_and_that_it_ended(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with working("computing"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("lethe.cli.text.waiting.SHORT", 0.01)
    with working("computing"):
        time.sleep(0.5)
    first, last = capsys.readouterr().err.splitlines()
    assert first == "  computing: 0 s so far"
    assert re.fullmatch(r"  computing: done after \d+ s", last)
