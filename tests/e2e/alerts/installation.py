"""What is watched: service, worker, Redis, a witness, and how each is stopped and started."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from lethe.client import Client
from lethe.client.retry import RetryPolicy
from tests.e2e.alerts.prometheus import Prometheus, configured, watching
from tests.e2e.forked import ForkServer
from tests.e2e.harness import LETHE, Processes, running, until
from tests.servers import free_port, redis_binary
from tests.small import MODEL, ROWS, manifest, pack, rows

MODELS = (MODEL, "small-2", "small-3", "small-4")
REVIEWED = "reviewed"  # an officer approves each of its requests
QUOTA = 4  # open requests of a key
MONTH_H = 31 * 24  # GDPR: one calendar month


@dataclass
class Watched:
    """A service and a worker of it at fixed ports, so that Prometheus finds them again."""

    processes: Processes
    redis_port: int
    worker_metrics: str
    prometheus: Prometheus | None = None
    redis: subprocess.Popen[bytes] | None = None
    witness: subprocess.Popen[bytes] | None = None
    witness_port: int = field(default_factory=free_port)
    refs: dict[str, str] = field(default_factory=dict)  # by a request's id, which is a secret
    records: dict[str, Iterator[int]] = field(
        default_factory=lambda: {ref: iter(range(ROWS)) for ref in (*MODELS, REVIEWED)}
    )

    @property
    def data(self) -> Path:
        return self.processes.directory / "data"

    @property
    def places(self) -> dict[str, str]:
        """The names of the processes by the addresses at which they are scraped."""
        return {f"127.0.0.1:{self.processes.port}": "API", self.worker_metrics: "worker"}

    @property
    def keys(self) -> Path:
        return self.data / "keys"

    def restart_api(self, **more: str) -> None:
        """Start the API again with further settings, and without those of the last time."""
        self.stop_api()
        before = dict(self.processes.more)
        self.processes.more.update(more)
        self.processes.start_api()
        self.processes.more = before

    def restart_worker(self, fault: str = "", **more: str) -> None:
        """Start the worker again, likewise."""
        self.stop_worker()
        before = dict(self.processes.more)
        self.processes.more.update(more)
        self.processes.start_worker(fault)
        self.processes.more = before

    def stop_api(self) -> None:
        """kill -9."""
        self._end("api")

    def stop_worker(self) -> None:
        """kill -9."""
        self._end("worker")

    def _end(self, name: str) -> None:
        process = getattr(self.processes, name)
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        setattr(self.processes, name, None)

    def submit(self, model: str = MODEL, record: int | None = None) -> str:
        """Submit an erasure, of a record that no request named before; return its id."""
        number = next(self.records[model]) if record is None else record
        with self.requester() as client:
            receipt = client.submit_erasure(model, records=[f"r{number}"])
        self.refs[receipt.id] = receipt.ref
        return receipt.id

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `lethe` as an operator does, beside the service."""
        processes = self.processes
        before = dict(processes.more)
        processes.more |= {"LETHE_TOKEN": processes.token, "LETHE_URL": processes.base_url}
        try:
            return processes.cli(*arguments)
        finally:
            processes.more = before

    def listed(self, *arguments: str) -> list[dict[str, Any]]:
        """Return what a command lists."""
        found = json.loads(self.command(*arguments, "--json").stdout)
        assert isinstance(found, list)
        return found

    def unready(self) -> set[str]:
        """Return the parts that /readyz names."""
        answer = httpx2.get(f"{self.processes.base_url}/readyz", timeout=30)
        return set(answer.json()["failed"].split(", ")) if answer.status_code == 503 else set()

    def requester(self, tries: int = 1) -> Client:
        """Return a client that signs, and sends once only."""
        processes = self.processes
        retry = RetryPolicy(tries=tries)
        return Client(processes.base_url, "alice", processes.key, retry=retry)

    def until_state(self, request: str, state: str) -> None:
        with self.requester(tries=10) as client:
            until(lambda: client.status(request).state == state, state, self.processes.api)

    def start_redis(self) -> None:
        """Start the broker at its port, empty."""
        options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.redis = subprocess.Popen(
            [redis_binary(), "--port", str(self.redis_port), *options],
            stdout=subprocess.DEVNULL,
            cwd=self.processes.directory,
        )

    def start_witness(self) -> None:
        """Start the witness at its port."""
        home = self.processes.directory / "witness"
        command = [*LETHE, "witness", "serve", str(home), "--port", str(self.witness_port)]
        self.witness = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def be_witnessed(self) -> None:
        """From now on have a witness cosign the log, if none does."""
        if self.witness is not None:
            return
        home, more = self.processes.directory / "witness", self.processes.more
        vkeys = self.processes.cli(
            *("witness", "init", str(home), "--name", "witness.example"),
            *("--log", str(self.keys / "log.vkey")),
        ).stdout.split()
        policy = self.processes.directory / "policy"
        url = f"http://127.0.0.1:{self.witness_port}"
        policy.write_text(f"witness w {vkeys[0]} {url}\nquorum w\n")
        more |= {"LETHE_WITNESS_POLICY": str(policy), "LETHE_WITNESS_SECONDS": "1"}
        self.start_witness()
        self.restart_api()
        self.restart_worker()

    @contextmanager
    def log_lock(self) -> Iterator[None]:
        """Hold the lock of SQLite's file, which is the log's, as a frozen process does."""
        connection = sqlite3.connect(self.data / "lethe.db", isolation_level=None, timeout=30)
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.close()  # rolls back

    def close(self) -> None:
        for process in (self.redis, self.witness):
            if process is not None:
                process.kill()
                process.wait()


def is_fitted(operator: Client, ref: str) -> bool:
    return bool(operator.model(ref)["state"] == "ready")


@contextmanager
def watched(directory: Path, forks: ForkServer) -> Iterator[Watched]:
    """Make an installation with five models, and have Prometheus watch it."""
    port, redis_port, worker = free_port(), free_port(), f"127.0.0.1:{free_port()}"
    broker = f"redis://127.0.0.1:{redis_port}/0"
    with running(directory / "service", "", broker, forks) as processes:
        processes.port = port
        made = Watched(processes, redis_port, worker)
        free = shutil.disk_usage(made.data).free
        processes.more = {
            "LETHE_WORKER_METRICS": worker,
            "LETHE_OPEN_REQUESTS_PER_KEY": str(QUOTA),
            "LETHE_WEBHOOK_ALLOW": "127.0.0.1",
            "LETHE_MAX_TRIES": "1",
            # Low after an eighth of what is free: a change that is seen on the dashboard.
            "LETHE_MIN_FREE_BYTES": str(free * 7 // 8 // 4),
            "LETHE_WITNESS_FAIL": "open",
        }
        try:
            made.start_redis()
            processes.start_api()
            processes.start_worker()
            processes.register()
            with processes.operator() as operator:
                for ref in (*MODELS[1:], REVIEWED):
                    decide = "review" if ref == REVIEWED else "at-once"
                    operator.register_model(manifest(ref=ref, decide=decide), pack(rows()))
                    until(partial(is_fitted, operator, ref), "the fit", processes.worker)
            printed = processes.cli(
                "token", "new", "--scope", "auditor", "--name", "prometheus"
            )
            token = printed.stdout.split()[-1]
            config = configured(directory, f"127.0.0.1:{port}", worker, token)
            with watching(config) as made.prometheus:
                made.until_state(made.submit(), "certified")  # rates need a change
                yield made
        finally:
            with suppress(OSError):
                made.close()
