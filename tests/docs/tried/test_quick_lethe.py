"""What a page's `lethe` forks lives no longer than what the page's shell started."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.docs.tried.quick_lethe import quick_lethe
from tests.e2e.forked import fork_server


@pytest.mark.timeout(60)
def test_what_was_forked_ends_when_its_program_is_killed(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    waits = ["lethe", "log", "verify", str(pipe), "--vkey", str(pipe)]
    with fork_server([]) as forks, quick_lethe(forks, tmp_path / "bin") as quick:
        environment = os.environ | quick
        with (
            subprocess.Popen(waits, env=environment, stdout=subprocess.PIPE) as program,
            pipe.open("wb"),  # opened once it is read: what was forked waits for bytes
        ):
            program.kill()
            program.communicate(timeout=30)  # until nobody can print any more
        assert program.returncode == -9
