"""A broker's client that pauses between two tries without waiting."""

import time

import pytest


def skip_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kombu's pauses pass at once: its clock goes on by each, and it gives up as ever."""
    skipped = [0.0]
    monkeypatch.setattr("kombu.utils.functional.sleep", skipped.append)
    monkeypatch.setattr("kombu.utils.functional.time", lambda: time.time() + sum(skipped))
