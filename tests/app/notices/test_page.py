"""docs/notices.md: its program verifies a real notice, and its tables are complete."""

import re
from pathlib import Path
from typing import Any

from app.notices import alarms
from app.notices.events import OF_LOG, STATES
from app.notices.letters import words
from lethe.catalogue import NOTICES
from tests.app.notices.conftest import ALLOWED, add, turn
from tests.app.notices.receiver import Receiver
from tests.installation import Installation

PAGE = Path(__file__).parents[3] / "docs" / "notices.md"


def test_the_program_of_the_page_verifies_a_notice(
    ready: Installation, receiver: Receiver, capsys: Any
) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    program: dict[str, Any] = {}
    exec(found[1], program)
    made = add(ready, receiver, "request.certified")
    ready.caller.erase_records("r5")
    ready.drain()
    turn(ready)
    [(headers, body)] = receiver.seen
    assert program["handle"](made["secret"], headers, body) == 204
    assert "is erased: PASS" in capsys.readouterr().out
    assert program["handle"](made["secret"], headers, body + b" ") == 401


def test_every_event_and_alarm_has_its_row() -> None:
    rows = set(re.findall(r"(?m)^\| `([a-z-]+(?:\.[a-z]+)?)` \|", PAGE.read_text()))
    rows -= {"history", "progress", "end"}  # of a stream
    rows -= set(STATES.values())  # of callbacks
    named = {*NOTICES, *alarms.ROWS.values(), alarms.GUARD}
    assert rows == named
    assert {*alarms.ROWS.values(), alarms.GUARD} <= set(words("en")["alarm"])
    assert set(OF_LOG.values()) <= set(NOTICES)


def test_every_state_of_a_callback_has_its_row() -> None:
    page = PAGE.read_text()
    table = page[page.index("| in `data.state` |") : page.index("A state that a newer one")]
    first = [line.split("|")[1] for line in table.splitlines()[2:] if line.startswith("|")]
    assert sorted(re.findall("`([a-z-]+)`", "".join(first))) == sorted(set(STATES.values()))


def test_the_second_program_of_the_page_verifies_a_callback(
    ready: Installation, receiver: Receiver, capsys: Any
) -> None:
    program: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1], program)
    object.__setattr__(ready.services.settings, "callback_allow", ALLOWED)
    fields = {"callback": receiver.url}
    assert ready.caller.erase_records("r5", fields=fields).status_code == 202
    ready.drain()
    turn(ready)
    [(headers, body)] = receiver.seen
    key = ready.caller.http.get("/v1/callbacks/key").json()["key"]
    assert program["handle"](key, headers, body) == 204
    assert "is now certified" in capsys.readouterr().out
    assert program["handle"](key, headers, body + b" ") == 401
