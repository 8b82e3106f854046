"""An installation to put load on: its own directory, API processes, workers and keys."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from sqlmodel import Session, select

from lethe import canonical
from lethe.client import Client
from lethe.signing.http import MAX_WINDOW, new_nonce, sign_request
from lethe.signing.keys import PrivateKey, generate_key
from models import RequestEvent
from models.database.session import make_engine
from workers.data.extractors.described import Described
from workers.data.federation import Federation, record_ids
from workers.registration.ridge import RidgeRegistration, prepare

KEYID = "load"
PUBLIC = "http://lethe.test"  # what signatures cover, whichever process a request reaches
START_S = 600.0  # SQLite first copies what a registration of millions of rows wrote ahead


class Installation:
    """Processes of one installation; `environment` says where its database and broker are."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("LETHE_")}
        self.environment = {
            **inherited,
            "LETHE_DATA_DIR": str(folder / "data"),
            "LETHE_ORIGIN": "localhost/benchmark",
            "LETHE_DECIDE": "at-once",  # nobody reviews here
            # One key sends all that the service takes, and nobody works on it meanwhile.
            "LETHE_CALLS_PER_MINUTE": "0",
            "LETHE_OPEN_REQUESTS_PER_KEY": "0",
            "LETHE_PUBLIC_URL": PUBLIC,
            **environment,
        }
        self.pids: list[int] = []  # of what `serving` started: the API processes first
        (folder / "data").mkdir(parents=True)
        self.key: PrivateKey = generate_key("ed25519")
        self.cli("migrate")
        self.cli("log", "init")
        named = ("token", "new", "--scope", "operator", "--name", "benchmark")
        self.token = self.cli(*named).split()[-1]

    def cli(self, *arguments: str) -> str:
        """Run one command; return what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "lethe.cli.main", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    @contextmanager
    def serving(self, processes: int = 1, workers: int = 0) -> Iterator[list[int]]:
        """Run API processes and workers; yield the ports of the former."""
        ready = [self.folder / f"ready-{number}.json" for number in range(processes)]
        for path in ready:
            path.unlink(missing_ok=True)
        commands = [["serve", "--port", "0", "--ready-file", str(path)] for path in ready]
        commands += [["worker", *(["--beat"] if n == 0 else [])] for n in range(workers)]
        with (self.folder / "service.log").open("ab") as log:
            running = [
                subprocess.Popen(
                    [sys.executable, "-m", "lethe.cli.main", *command],
                    env=self.environment,
                    stdout=log,
                    stderr=log,
                )
                for command in commands
            ]
        self.pids = [process.pid for process in running]
        try:
            yield [_port(path) for path in ready]
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait()

    @contextmanager
    def client(self, port: int) -> Iterator[Client]:
        """Yield a client that holds the operator's token and the requester's key."""
        url = f"http://127.0.0.1:{port}"
        with Client(url, KEYID, self.key, token=self.token) as client:
            yield client

    def prepare(self, ref: str, rows: int, columns: int) -> RidgeRegistration:
        """Return the registration of a ridge model of made-up rows, one in eleven held out."""
        extractor = Described("made-up", "00" * 32, {}, columns)
        return prepare(_federation(rows, columns), extractor, ref=ref)

    def register(self, port: int, ref: str, rows: int, columns: int = 16) -> list[str]:
        """Register a ridge model of made-up rows; return its records once it is fitted.

        A worker must run.
        """
        made = self.prepare(ref, rows, columns)
        with self.client(port) as client:
            client.register_key(self.key, keyid=KEYID)
            client.register_model(made.manifest, made.npz)
            while client.model(ref)["state"] == "registered":
                time.sleep(0.05)
        return made.records

    def event_times(self, request_id: str) -> dict[str, datetime]:
        """Return when each event of a request was logged, to the microsecond, by its name."""
        url = self.environment.get("LETHE_DATABASE_URL", "")
        engine = make_engine(url or f"sqlite:///{self.folder / 'data' / 'lethe.db'}")
        try:
            with Session(engine) as session:
                query = select(RequestEvent.event, RequestEvent.at)
                found = session.exec(query.where(RequestEvent.request_id == request_id))
                return dict(found.all())
        finally:
            engine.dispose()

    def submission(self, ref: str, record: str) -> bytes:
        """Return the bytes of a signed erasure request of one record; good for ten minutes."""
        body = canonical.encode(
            {"model": ref, "scope": {"level": "sample", "records": [record]}}
        )
        headers = {"content-type": "application/json"}
        added = sign_request(
            "POST",
            f"{PUBLIC}/v1/requests",
            headers,
            body,
            self.key,
            KEYID,
            now=datetime.now(UTC),
            nonce=new_nonce(),
            lifetime=MAX_WINDOW,
        )
        return post("/v1/requests", {**headers, **added}, body)


def post(path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return the bytes of an HTTP/1.1 POST."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        *(f"{name}: {value}" for name, value in headers.items()),
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _federation(rows: int, columns: int) -> Federation:
    rng = np.random.Generator(np.random.PCG64(0))
    held_out = max(100, rows // 10)
    features = rng.standard_normal((rows + held_out, columns)).astype(np.float32)
    labels = (features[:, 0] > 0).astype(np.int64)
    names = np.array([f"client-{row % 50}" for row in range(rows + held_out)])
    is_test = np.arange(rows + held_out) >= rows
    return Federation(
        features, labels, names, ("no", "yes"), is_test, record_ids(rows + held_out)
    )


def _port(ready: Path) -> int:
    deadline = time.monotonic() + START_S
    while not ready.exists():
        if time.monotonic() > deadline:
            raise TimeoutError("an API process did not start: see service.log")
        time.sleep(0.02)
    return int(json.loads(ready.read_text())["base_url"].rsplit(":", 1)[1])
