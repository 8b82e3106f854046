"""A service in real processes on real servers, and the means to kill it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Self, TypeVar

from app.settings import Settings
from lethe.client import Client
from lethe.client.errors import UnreachableError
from lethe.signing.keys import PrivateKey, generate_key
from tests.e2e.forked import Forked, ForkServer
from tests.small import MODEL, manifest, pack, rows

T = TypeVar("T")
ORIGIN = "e2e.test/lethe"
PATIENCE = 60.0  # seconds; on two busy cores a worker needs several to start
LETHE = [sys.executable, "-m", "lethe.cli.main"]
Process = subprocess.Popen[bytes] | Forked


@dataclass
class Processes:
    """The API and a worker as separate processes over one database and one broker."""

    directory: Path
    database_url: str
    broker_url: str
    key: PrivateKey = field(default_factory=lambda: generate_key("ed25519"))
    forks: ForkServer | None = None  # None: every process begins with nothing imported
    api: Process | None = None
    worker: Process | None = None
    base_url: str = ""
    token: str = ""
    more: dict[str, str] = field(default_factory=dict)  # further settings of both
    port: int = 0  # of the API; 0: one that is free

    def environment(self, fault: str = "") -> dict[str, str]:
        """Return what both processes see; short leases, or a kill would stall the test."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("LETHE_")}
        return {
            **inherited,
            "LETHE_DATA_DIR": str(self.directory / "data"),
            "LETHE_DATABASE_URL": self.database_url,
            "LETHE_BROKER_URL": self.broker_url,
            "LETHE_ORIGIN": ORIGIN,
            "LETHE_DECIDE": "at-once",  # nobody reviews here
            "LETHE_LEASE_SECONDS": "2",
            "LETHE_SWEEP_SECONDS": "1",
            "LETHE_FAULT": fault,
            "OPENBLAS_NUM_THREADS": "1",
            **self.more,
        }

    def cli(
        self, *arguments: str, check: bool = True, patience: float = PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        """Run a `lethe` command to its end, which comes within `patience` seconds."""
        with TemporaryFile() as printed, TemporaryFile() as said:
            status = self.start(arguments, printed, said).wait(timeout=patience)
            printed.seek(0)
            said.seek(0)
            done = subprocess.CompletedProcess(
                arguments, status, printed.read().decode(), said.read().decode()
            )
        assert not check or status == 0, (
            f"{arguments} ended with {status}:\n{done.stdout}{done.stderr}"
        )
        return done

    def initialise(self) -> None:
        """Migrate, begin the log, make a token."""
        self.cli("migrate")
        self.cli("log", "init")
        printed = self.cli("token", "new", "--scope", "operator", "--name", "e2e").stdout
        self.token = printed.split()[-1]

    def start_api(self, fault: str = "") -> None:
        """Start the API; returns when its port is bound."""
        ready = self.directory / "ready.json"
        ready.unlink(missing_ok=True)
        command = ["serve", "--port", str(self.port), "--ready-file", str(ready)]
        self.api = self._spawn(command, "api.log", fault)
        until(ready.exists, "the API to start", self.api)
        self.base_url = json.loads(ready.read_text())["base_url"]

    def start_worker(self, fault: str = "", *, beat: bool = True) -> None:
        """Start a worker, with the schedule unless `beat` is False."""
        command = ["worker", "--beat"] if beat else ["worker"]
        self.worker = self._spawn(command, "worker.log", fault)

    def _spawn(self, arguments: Sequence[str], log: str, fault: str) -> Process:
        with (self.directory / log).open("ab") as output:
            return self.start(arguments, output, output, fault)

    def start(
        self, arguments: Sequence[str], printed: IO[bytes], said: IO[bytes], fault: str = ""
    ) -> Process:
        """Start a `lethe` command in a session of its own, by its standard output and error."""
        environment = self.environment(fault)
        with Path(os.devnull).open("rb") as nothing:
            if self.forks is not None:
                streams = [nothing.fileno(), printed.fileno(), said.fileno()]
                return self.forks.start(arguments, environment, streams)
            return subprocess.Popen(
                [*LETHE, *arguments],
                env=environment,
                stdin=nothing,
                stdout=printed,
                stderr=said,
                start_new_session=True,
            )

    def kill(self) -> None:
        """kill -9 whatever runs, all at one moment."""
        started = [process for process in (self.api, self.worker) if process is not None]
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        for process in started:
            process.wait()
        self.api = self.worker = None

    def restart(self) -> None:
        """Start again what does not run."""
        if self.api is None or self.api.poll() is not None:
            self.start_api()
        if self.worker is None or self.worker.poll() is not None:
            self.start_worker()

    @property
    def settings(self) -> Settings:
        """What opens this installation's database and log in the test's own process."""
        return Settings(
            data_dir=self.directory / "data",
            database_url=self.database_url,
            origin=ORIGIN,
            decide="at-once",
        )

    def copy(self, directory: Path, database_url: str, broker_url: str) -> Self:
        """Return a copy that nothing of runs, on a database that is a copy already."""
        assert (self.api, self.worker) == (None, None)
        shutil.copytree(self.directory, directory)
        return replace(
            self, directory=directory, database_url=database_url, broker_url=broker_url
        )

    def operator(self, **options: Any) -> Client:
        """Return a client with the operator's token."""
        return Client(self.base_url, token=self.token, **options)

    def requester(self, **options: Any) -> Client:
        """Return a client that signs."""
        return Client(self.base_url, "alice", self.key, **options)

    def register(self) -> None:
        """Register key and model and wait for the fit."""
        with self.operator() as operator:
            operator.register_key(self.key, keyid="alice")
            operator.register_model(manifest(), pack(rows()))
            until(lambda: operator.model(MODEL)["state"] == "ready", "the fit", self.worker)


def until(condition: Callable[[], bool], what: str, process: Process | None = None) -> None:
    """Wait for a condition; fail at once if the process it needs has ended."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except UnreachableError:
            pass
        if process is not None and process.poll() is not None:
            raise AssertionError(f"the process ended while waiting for {what}")
        time.sleep(0.05)
    raise AssertionError(f"waited {PATIENCE} s for {what}")


@contextmanager
def running(
    directory: Path, database_url: str, broker_url: str, forks: ForkServer | None = None
) -> Iterator[Processes]:
    """Make an installation; whatever was started is killed at the end."""
    directory.mkdir(exist_ok=True)
    processes = Processes(directory, database_url, broker_url, forks=forks)
    processes.initialise()
    with stopped(processes):
        yield processes


@contextmanager
def stopped(processes: Processes) -> Iterator[Processes]:
    """Yield an installation; whatever was started of it is killed at the end."""
    try:
        yield processes
    finally:
        processes.kill()
