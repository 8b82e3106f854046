"""A shell that keeps its variables, functions and background processes from command to command."""

import os
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

PATIENCE = 300.0  # seconds; the first forest of a new clone is compiled, in a minute or more


class Shell:
    """One bash in a working directory of its own."""

    def __init__(self, directory: Path, notes: Path, environment: Mapping[str, str]) -> None:
        """Start it. notes: where what is entered and printed is written."""
        notes.mkdir(parents=True)
        self.directory, self._notes, self._count = directory, notes, 0
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=directory,
            env=dict(environment),
            start_new_session=True,
        )

    def run(self, statement: str, typed: str = "") -> tuple[int, str]:
        """Return the exit status, and what was printed on both outputs."""
        output = self._enter(statement, typed)
        return self._answer(statement, output), output.read_text(errors="replace")

    def start(self, statement: str, ready: str) -> str:
        """Run a server in the background; returns what it printed once that has `ready`."""
        served = statement.rstrip(" &") + " &\nSERVED+=($!)"
        # The installed `lethe`: who stops it stops a process of its own.
        output = self._enter(
            f'SHORT="$PATH"; PATH="${{DIRECT:-$PATH}}"\n{served}\nPATH="$SHORT"', ""
        )
        assert self._answer(statement, output) == 0
        deadline = time.monotonic() + PATIENCE
        while ready not in (printed := output.read_text(errors="replace")):
            assert time.monotonic() < deadline, (
                f"{statement} did not print {ready!r}: {printed}"
            )
            assert self.run('kill -0 "${SERVED[-1]}"')[0] == 0, f"{statement} ended: {printed}"
            time.sleep(0.05)
        return printed

    def still_serves(self) -> bool:
        """Say whether all that `start` started still runs."""
        return self.run('for one in "${SERVED[@]}"; do kill -0 "$one" || exit 1; done')[0] == 0

    def stop(self) -> None:
        """End what `start` started, and wait until it has ended."""
        self.run('kill "${SERVED[@]}"; wait "${SERVED[@]}"; SERVED=()')

    def _enter(self, statement: str, typed: str) -> Path:
        self._count += 1
        entered, answers, output = (
            self._notes / f"{self._count}.{suffix}" for suffix in ("sh", "in", "out")
        )
        entered.write_text(f"{{ {statement}\n}}\n")
        answers.write_text(typed)
        output.touch()
        files = [shlex.quote(str(path)) for path in (entered, answers, output)]
        assert self._bash.stdin is not None
        # `.` keeps what the statement sets in this shell.
        line = ". {} < {} >> {} 2>&1; echo $?\n".format(*files)
        self._bash.stdin.write(line.encode())
        self._bash.stdin.flush()
        return output

    def _answer(self, statement: str, output: Path) -> int:
        assert self._bash.stdout is not None
        ready, _, _ = select.select([self._bash.stdout], [], [], PATIENCE)
        said = output.read_text(errors="replace")
        assert ready, f"{statement} still ran after {PATIENCE} s: {said}"
        line = self._bash.stdout.readline()
        assert line, f"{statement} ended the shell: {said}"
        return int(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the shell and all that it started."""
        os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.communicate()
