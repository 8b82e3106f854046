"""The service of a soak: two API processes and two workers, of which one each is killed.

What is never killed shows what a long-lived process gathers; what is killed shows what its
deaths leave behind. Workers run the schedule too: one of them is elected.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.service.installation import Installation

LASTING, KILLED = "lasting", "killed"
ROLES = ("api", "worker")
START_S = 120.0
# What ended is destroyed by the next retention run, and a killed worker's job is taken over
# after seconds: two hours see what years would.
SETTINGS = {
    "LETHE_REQUEST_RETENTION_DAYS": "0",
    "LETHE_EVIDENCE_RETENTION_DAYS": "0",
    "LETHE_LEASE_SECONDS": "10",
    "LETHE_SWEEP_SECONDS": "2",
}


class Service:
    """Processes by (role, LASTING or KILLED), over one installation."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.urls = {life: f"http://127.0.0.1:{_free_port()}" for life in (LASTING, KILLED)}
        # Signatures cover the URL that is called, whichever process it is of.
        own = {"LETHE_PUBLIC_URL": "", **SETTINGS, **environment}
        self.installation = Installation(folder / "installation", own)
        self.data.chmod(0o700)  # or `lethe doctor` complains
        self.running: dict[tuple[str, str], subprocess.Popen[bytes]] = {}

    @property
    def data(self) -> Path:
        """The data folder of the installation."""
        return self.installation.folder / "data"

    def start(self, role: str, life: str) -> None:
        """Start a process; one that is there must have ended."""
        command = ["worker", "--beat"]
        ready = self.folder / f"{life}.json"
        if role == "api":
            ready.unlink(missing_ok=True)
            port = self.urls[life].rpartition(":")[2]
            command = ["serve", "--port", port, "--ready-file", str(ready)]
        with (self.folder / f"{role}-{life}.log").open("ab") as log:
            self.running[role, life] = subprocess.Popen(
                [sys.executable, "-m", "lethe.cli.main", *command],
                env=self.installation.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if role == "api":
            self._wait(ready, life)

    def _wait(self, ready: Path, life: str) -> None:
        until = time.monotonic() + START_S
        while not ready.exists():
            if self.running["api", life].poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"an API process did not start: see {life}.log")
            time.sleep(0.05)
        assert json.loads(ready.read_text())["base_url"] == self.urls[life]

    def kill(self, role: str) -> None:
        """Send SIGKILL to the process of a role that may die, and to its children."""
        process = self.running[role, KILLED]
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the installation to its end."""
        return subprocess.run(
            [sys.executable, "-m", "lethe.cli.main", *arguments],
            env=self.installation.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def ended(self) -> list[str]:
        """Return which processes ended though `kill` did not kill them."""
        return [
            f"{role} ({life}) ended with {process.returncode}"
            for (role, life), process in list(self.running.items())
            if process.poll() is not None
            and (life, process.returncode) != (KILLED, -signal.SIGKILL)
        ]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Run all processes; in the end they are asked to stop."""
        try:
            for role in ROLES:
                for life in (LASTING, KILLED):
                    self.start(role, life)
            yield
        finally:
            for process in self.running.values():
                process.terminate()
            for process in self.running.values():
                try:
                    process.wait(timeout=START_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
