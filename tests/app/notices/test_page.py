"""docs/notices.md: its program verifies a real notice, and its tables are complete."""

import re
from pathlib import Path
from typing import Any

from app.notices import alarms
from app.notices.events import OF_LOG
from app.notices.letters import words
from lethe.catalogue import NOTICES
from tests.app.notices.conftest import add, turn
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
    named = {*NOTICES, *alarms.ROWS.values(), alarms.GUARD}
    assert rows == named
    assert {*alarms.ROWS.values(), alarms.GUARD} <= set(words("en")["alarm"])
    assert set(OF_LOG.values()) <= set(NOTICES)
