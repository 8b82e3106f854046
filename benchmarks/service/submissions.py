"""Accepted submissions a second, beside a bare insert on the same database in the same run.

Contenders take turns, so that a slow minute of the machine slows both.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.service.installation import Installation, post
from benchmarks.service.load import Measured, drive
from benchmarks.service.servers import created_database
from tests.servers import free_port, postgres_server, redis_server

CONNECTIONS = 8
MANY = 32  # connections: the log's lock is taken and synced once for more of them
MODEL = "load"


def measure(folder: Path, requests: int, rounds: int) -> dict[str, float | list[float]]:
    """Return rates, ratios and latencies on PostgreSQL and SQLite; `requests` for each run."""
    with postgres_server(durable=True) as server, redis_server() as broker:
        databases = [created_database(server, name) for name in ("lethe_load", "lethe_bare")]
        environment = {"LETHE_DATABASE_URL": databases[0], "LETHE_BROKER_URL": broker}
        found, turns = _measure(
            folder / "postgres", environment, databases[1], requests, rounds, (1, 2)
        )
    bare = f"sqlite:///{folder / 'bare.sqlite'}"
    sqlite, sqlite_turns = _measure(folder / "sqlite", {}, bare, requests, rounds, (1,))
    better = max(found["bare_1"], found["bare_2"])
    many = max(found["bare_1_many"], found["bare_2_many"])
    return {
        "submissions_per_second_postgres": found["lethe_1"],
        "submissions_per_second_postgres_2": found["lethe_2"],
        "bare_per_second_postgres": found["bare_1"],
        "bare_per_second_postgres_2": found["bare_2"],
        "submission_ratio_postgres_1": found["lethe_1"] / better,
        "submission_ratio_postgres_1_rounds": turns[1],
        "submission_ratio_postgres_2": found["lethe_2"] / better,
        "submission_ratio_postgres_2_rounds": turns[2],
        "submissions_per_second_postgres_32_connections": found["lethe_1_many"],
        "submissions_per_second_postgres_2_32_connections": found["lethe_2_many"],
        "bare_per_second_postgres_32_connections": found["bare_1_many"],
        "bare_per_second_postgres_2_32_connections": found["bare_2_many"],
        "submission_ratio_postgres_1_32_connections": found["lethe_1_many"] / many,
        "submission_ratio_postgres_2_32_connections": found["lethe_2_many"] / many,
        "submission_p99_ms": found["p99_ms"],
        "submission_idle_ms": found["idle_ms"],
        "submissions_per_second_sqlite": sqlite["lethe_1"],
        "bare_per_second_sqlite": sqlite["bare_1"],
        "submission_ratio_sqlite": sqlite["lethe_1"] / sqlite["bare_1"],
        "submission_ratio_sqlite_rounds": sqlite_turns[1],
        "submission_p99_ms_sqlite": sqlite["p99_ms"],
        "submission_idle_ms_sqlite": sqlite["idle_ms"],
    }


def _measure(
    folder: Path,
    environment: dict[str, str],
    bare_url: str,
    requests: int,
    rounds: int,
    processes: tuple[int, ...],
) -> tuple[dict[str, float], dict[int, list[float]]]:
    """Return medians, and the ratio in each turn by the number of API processes."""
    installation = Installation(folder, environment)
    needed = 4 * requests * (rounds + 1) * len(processes)
    with installation.serving(workers=1) as (port,):
        records = iter(installation.register(port, MODEL, needed))
    found: dict[str, float] = {}
    turns: dict[int, list[float]] = {}
    for count in processes:
        rates: dict[str, list[float]] = {name: [] for name in _CONTENDERS}
        with installation.serving(count) as ports, _bare(bare_url, count) as bare_ports:
            for turn in range(rounds + 1):
                found_now = (
                    _lethe(installation, ports, records, requests),
                    drive(bare_ports, _rows(requests), CONNECTIONS),
                    _lethe(installation, ports, records, requests, connections=MANY),
                    drive(bare_ports, _rows(requests), MANY),
                )
                if turn:  # the first one warms all up
                    for name, one in zip(_CONTENDERS, found_now, strict=True):
                        rates[name].append(one.rate)
            if count == 1:
                half = median(rates["lethe"]) / 2
                some = _lethe(installation, ports, records, requests, half)
                found["p99_ms"] = 1000 * some.quantile(0.99)
                idle = _lethe(installation, ports, records, min(50, requests), 5.0, 1)
                found["idle_ms"] = 1000 * idle.quantile(0.5)
        for name, values in rates.items():
            contender, _, many = name.partition("_")
            found["_".join(filter(None, (contender, str(count), many)))] = median(values)
        turns[count] = [a / b for a, b in zip(rates["lethe"], rates["bare"], strict=True)]
    return found, turns


_CONTENDERS = ("lethe", "bare", "lethe_many", "bare_many")


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
