"""A whole service on this machine: created, started and stopped by the demonstration."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import click

from lethe.errors import LetheError
from workers.demo.serving import READY

STOP_SECONDS = 30
START_SECONDS = 60  # a cold disk takes a while to read the interpreter and its libraries


class DemoError(LetheError):
    """The demonstration cannot go on; the message says what to do."""

    slug, title, status = "demo-failed", "Demonstration failed", 500


class LocalService:
    """The API and an embedded worker as one child process, on a free port."""

    def __init__(self, data_dir: Path, log_file: Path) -> None:
        # Its command line identifies the process later.
        self._ready = (data_dir / READY).resolve()
        self._log_file = log_file
        # The demonstration touches only its directory, whatever the shell's environment.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("LETHE_")}
        self.environment = {
            **inherited,
            "LETHE_DATA_DIR": str(data_dir),
            "LETHE_ORIGIN": "localhost/lethe-demo",
            "LETHE_DECIDE": "at-once",  # there is no reviewer here
            "LETHE_ENVIRONMENT": "development",
        }
        self.process: subprocess.Popen[bytes] | None = None

    def run_cli(self, *arguments: str) -> str:
        """Run one `lethe` command against this service's data; returns what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "lethe.cli.main", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise DemoError(f"lethe {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def start(self) -> str:
        """Start the service; returns its base URL once it can take requests."""
        self._ready.unlink(missing_ok=True)
        with self._log_file.open("ab") as log:
            command = [sys.executable, "-m", "lethe.cli.main", "serve", "--embedded-worker"]
            self.process = subprocess.Popen(
                [*command, "--port", "0", "--ready-file", str(self._ready)],
                env=self.environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._ready.exists():
                return str(json.loads(self._ready.read_text())["base_url"])
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        self.stop()
        raise DemoError(f"the service did not start: see {self._log_file}")

    @property
    def pid(self) -> int:
        """The process id of the running service."""
        assert self.process is not None
        return self.process.pid

    def stop(self) -> None:
        """Stop the service and its worker, if they run, after their current task."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=STOP_SECONDS)
        finally:
            self.kill()

    def kill(self) -> bool:
        """Kill the service and its worker; return whether the service was still running.

        Kills the whole session: a worker alone would finish its training. The ledger survives
        it as it survives a crash.
        """
        if self.process is None or self.process.poll() is not None:
            return False
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return True


@contextmanager
def stopped_on_failure(service: LocalService) -> Iterator[None]:
    """Kill the service if the block fails: it has a session of its own.

    Otherwise its training would continue, possibly for hours, for nobody.

    Raises SystemExit on SIGTERM or SIGHUP, with 128 plus its number, as shells report it.
    """

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    # Signals that nohup ignores stay ignored.
    caught = [
        n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN
    ]
    before = {number: signal.signal(number, end) for number in caught}
    try:
        yield
    except BaseException:
        if service.kill():
            with suppress(OSError):  # if the terminal hung up
                click.echo("stopped the demo's service", err=True)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
