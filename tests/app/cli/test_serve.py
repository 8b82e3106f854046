"""`lethe serve --embedded-worker`: what is started beside the API."""

import subprocess
import threading
from typing import Any

import pytest

from app.cli import serve


class Started:
    """In place of a process: it ends when it is told to."""

    commands: list[list[str]]

    def __init__(self, command: list[str], **_: Any) -> None:
        self.commands.append(command[command.index("worker") :])
        self.ended = threading.Event()

    def terminate(self) -> None:
        self.ended.set()

    def wait(self, timeout: float | None = None) -> int:
        assert self.ended.wait(30)
        return 0


@pytest.mark.parametrize("silos", [0, 2])
def test_every_silo_has_a_worker(silos: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Started, "commands", [], raising=False)
    monkeypatch.setattr(subprocess, "Popen", Started)
    workers = serve._embedded(silos)
    expected = [["--beat"], *(["--silo", str(number)] for number in range(silos))]
    assert Started.commands == [["worker", "--until-eof", *options] for options in expected]
    for worker in workers:
        worker.end()
    for worker in workers:
        worker.wait()
        worker._watch.join(30)
        assert not worker._watch.is_alive()
