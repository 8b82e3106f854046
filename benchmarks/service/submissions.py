"""Accepted submissions a second, beside a bare insert on the same database in the same run.

Contenders take turns, and a ratio is of one turn: a slow minute of the machine slows both.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median

from benchmarks.service.installation import Installation, post
from benchmarks.service.load import Measured, drive
from benchmarks.service.servers import created_database
from tests.servers import free_port, postgres_server, redis_server

CONNECTIONS = 8
MANY = 32  # connections: the log's lock is taken and synced once for more of them
MODEL = "load"
LETHE, BARE = "lethe", "bare"  # contenders


def measure(folder: Path, requests: int, rounds: int) -> dict[str, float | list[float]]:
    """Return rates, ratios and latencies on PostgreSQL and SQLite; `requests` for each run."""
    with postgres_server(durable=True) as server, redis_server() as broker:
        databases = [created_database(server, name) for name in ("lethe_load", "lethe_bare")]
        environment = {"LETHE_DATABASE_URL": databases[0], "LETHE_BROKER_URL": broker}
        postgres = _measure(
            folder / "postgres", environment, databases[1], requests, rounds, (1, 2)
        )
    bare = f"sqlite:///{folder / 'bare.sqlite'}"
    sqlite = _measure(folder / "sqlite", {}, bare, requests, rounds, (1,))
    found: dict[str, float | list[float]] = {}
    for count in (1, 2):
        suffix = "" if count == 1 else f"_{count}"
        for connections, named in ((CONNECTIONS, ""), (MANY, f"_{MANY}_connections")):
            lethe, bare_rate = (
                median(postgres.rates[name, count, connections]) for name in (LETHE, BARE)
            )
            found[f"submissions_per_second_postgres{suffix}{named}"] = lethe
            found[f"bare_per_second_postgres{suffix}{named}"] = bare_rate
            ratios = postgres.ratios(count, connections)
            found[f"submission_ratio_postgres_{count}{named}"] = median(ratios)
            found[f"submission_ratio_postgres_{count}{named}_rounds"] = ratios
    ratios = sqlite.ratios(1, CONNECTIONS)
    return {
        **found,
        "submission_p99_ms": postgres.p99_ms,
        "submission_idle_ms": postgres.idle_ms,
        "submissions_per_second_sqlite": median(sqlite.rates[LETHE, 1, CONNECTIONS]),
        "bare_per_second_sqlite": median(sqlite.rates[BARE, 1, CONNECTIONS]),
        "submission_ratio_sqlite": median(ratios),
        "submission_ratio_sqlite_rounds": ratios,
        "submission_p99_ms_sqlite": sqlite.p99_ms,
        "submission_idle_ms_sqlite": sqlite.idle_ms,
    }


@dataclass(frozen=True, slots=True)
class _Turns:
    """Rates a second in each turn, by contender, API processes and connections."""

    rates: dict[tuple[str, int, int], list[float]]
    p99_ms: float
    idle_ms: float

    def ratios(self, count: int, connections: int) -> list[float]:
        """Return Lethe's rate to the best of the bare ones, turn by turn."""
        bare = [
            rates
            for (name, _, over), rates in self.rates.items()
            if (name, over) == (BARE, connections)
        ]
        lethe = self.rates[LETHE, count, connections]
        return [rate / max(turn) for rate, *turn in zip(lethe, *bare, strict=True)]


def _measure(
    folder: Path,
    environment: dict[str, str],
    bare_url: str,
    requests: int,
    rounds: int,
    processes: tuple[int, ...],
) -> _Turns:
    """Measure each contender in each turn; one that is not its turn's has idle processes."""
    installation = Installation(folder, environment)
    needed = 2 * requests * (rounds + 2) * len(processes)
    with installation.serving(workers=1) as (port,):
        records = iter(installation.register(port, MODEL, needed))
    rates: dict[tuple[str, int, int], list[float]] = {}
    most = max(processes)
    with installation.serving(most) as ports, _bare(bare_url, most) as bare_ports:
        for turn in range(rounds + 1):
            for connections, count in product((CONNECTIONS, MANY), processes):
                lethe = _lethe(installation, ports[:count], records, requests, 0.0, connections)
                bare = drive(bare_ports[:count], _rows(requests), connections)
                if turn:  # the first one warms all up
                    rates.setdefault((LETHE, count, connections), []).append(lethe.rate)
                    rates.setdefault((BARE, count, connections), []).append(bare.rate)
        half = median(rates[LETHE, 1, CONNECTIONS]) / 2
        some = _lethe(installation, ports[:1], records, requests, half)
        idle = _lethe(installation, ports[:1], records, min(50, requests), 5.0, 1)
    return _Turns(rates, 1000 * some.quantile(0.99), 1000 * idle.quantile(0.5))


def _lethe(
    installation: Installation,
    ports: list[int],
    records: Iterator[str],
    requests: int,
    rate: float = 0.0,
    connections: int = CONNECTIONS,
) -> Measured:
    made = [installation.submission(MODEL, next(records)) for _ in range(requests)]
    return drive(ports, made, connections, rate)


def _rows(requests: int) -> list[bytes]:
    headers = {"content-type": "application/json"}
    return [
        post("/rows", headers, f'{{"model":"load","record":"r{number}"}}'.encode())
        for number in range(requests)
    ]


@contextmanager
def _bare(url: str, processes: int) -> Iterator[list[int]]:
    ports = [free_port() for _ in range(processes)]
    running = []
    for port in ports:
        command = [sys.executable, "-m", "benchmarks.service.bare", str(port)]
        running.append(subprocess.Popen(command, env={**os.environ, "LETHE_BARE_URL": url}))
        _wait(port)  # one after the other: each creates the table where it is missing
    try:
        yield ports
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()


def _wait(port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
