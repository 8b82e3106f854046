"""Submissions and certificates with 1, 2 and 4 processes, and who spends the processor.

Processes of one installation on one PostgreSQL and Redis. Where the rate stops growing and the
processor is not all spent, processes wait for each other; where it is all spent, they share it,
and the milliseconds of each role say what another core would carry. They are counted by the
names of processes: nothing else on the machine may be called postgres or redis-server.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sqlalchemy import create_engine, func, select, text
from sqlalchemy.engine import Engine

from benchmarks.service.certification import count_certified
from benchmarks.service.installation import Installation
from benchmarks.service.load import drive
from benchmarks.service.servers import created_database
from models import LogEntry
from tests.servers import postgres_server, redis_server

PROCESSES = (1, 2, 4)
CONNECTIONS = 16
WARM = 80  # submissions that are not counted: a process's first ones are slow
TICKS = os.sysconf("SC_CLK_TCK")
ROLES = ("lethe", "database", "broker", "load")


def measure(folder: Path, requests: int) -> dict[str, float]:
    """Return rates, processor time by role, cores in use, and what is kept of a request.

    requests: submissions for each number of processes; as many are then certified.
    """
    found: dict[str, float] = {}
    with postgres_server(durable=True) as server, redis_server() as broker:
        url = created_database(server, "lethe_scale")
        environment = {"LETHE_DATABASE_URL": url, "LETHE_BROKER_URL": broker}
        installation = Installation(folder / "scale", environment)
        models = [f"model-{number}" for number in range(max(PROCESSES))]
        needed = (requests + WARM) * len(PROCESSES) // len(models) + 1
        engine = create_engine(url)
        try:
            empty = _held(engine, folder / "scale")
            with installation.serving(workers=1) as (port,):
                records = {
                    model: iter(installation.register(port, model, needed)) for model in models
                }
            held = _held(engine, folder / "scale")
            for name in ("database_bytes", "file_bytes"):
                found[f"scale_{name}_per_record"] = (held[name] - empty[name]) / (
                    needed * len(models)
                )
            for count in PROCESSES:
                found |= _submit(installation, records, requests, count)
                done = count_certified(engine) + requests + WARM
                with installation.serving(0, workers=count):
                    # From the first certificate on: workers take a second to start.
                    first = _certified(engine, done - requests - WARM + 1)
                    begun, before = time.perf_counter(), _spent(installation)
                    _certified(engine, done)
                    seconds = time.perf_counter() - begun
                    after = _spent(installation)
                found |= _values("certified", count, done - first, seconds, before, after)
            number = (requests + WARM) * len(PROCESSES)
            for name, after_all in _held(engine, folder / "scale").items():
                found[f"scale_{name}_per_request"] = (after_all - held[name]) / number
        finally:
            engine.dispose()
    return found


def _submit(
    installation: Installation,
    records: dict[str, Iterator[str]],
    requests: int,
    count: int,
) -> dict[str, float]:
    models = list(records)
    made = [
        installation.submission(model, next(records[model]))
        for model in (models[number % len(models)] for number in range(requests + WARM))
    ]
    with installation.serving(count) as ports:
        drive(ports, made[:WARM], CONNECTIONS)
        before = _spent(installation)
        done = drive(ports, made[WARM:], CONNECTIONS)
        after = _spent(installation)
    return _values("submissions", count, requests, done.seconds, before, after)


def _values(
    what: str,
    count: int,
    number: int,
    seconds: float,
    before: dict[str, float],
    after: dict[str, float],
) -> dict[str, float]:
    used = {role: after[role] - before[role] for role in ROLES}
    name = f"scale_{what}"
    return {
        f"{name}_per_second_{count}": number / seconds,
        **{f"{name}_{role}_ms_{count}": 1000 * used[role] / number for role in ROLES},
        f"{name}_cores_busy_{count}": sum(used.values()) / seconds,
    }


def _held(engine: Engine, folder: Path) -> dict[str, float]:
    """Return the bytes of the database and of files, and the entries of the log."""
    with engine.connect() as connection:
        size = connection.execute(
            text("SELECT pg_database_size(current_database())")
        ).scalar_one()
        entries = connection.execute(select(func.count()).select_from(LogEntry)).scalar_one()
    files = sum(path.stat().st_size for path in (folder / "data").rglob("*") if path.is_file())
    return {
        "database_bytes": float(size),
        "file_bytes": float(files),
        "entries": float(entries),
    }


def _certified(engine: Engine, at_least: int, limit_s: float = 300.0) -> int:
    """Wait for so many certificates; return how many there are."""
    deadline = time.monotonic() + limit_s
    while (known := count_certified(engine)) < at_least:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{known} of {at_least} certificates after {limit_s:.0f} s")
        time.sleep(0.02)
    return known


def _spent(installation: Installation) -> dict[str, float]:
    """Return the processor seconds so far of each role, of ended children too."""
    found = dict.fromkeys(ROLES, 0.0)
    parents: dict[int, int] = {}
    used: dict[int, tuple[str, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended
            text = path.read_text()
            name = text[text.index("(") + 1 : text.rindex(")")]
            fields = text[text.rindex(")") + 2 :].split()
            pid, parents[int(path.parent.name)] = int(path.parent.name), int(fields[1])
            used[pid] = name, sum(map(int, fields[11:15])) / TICKS
    for pid, (name, seconds) in used.items():
        if pid == os.getpid():
            times = os.times()
            found["load"] = times.user + times.system
        elif name == "postgres":
            found["database"] += seconds
        elif name == "redis-server":
            found["broker"] += seconds
        elif _descends(pid, installation.pids, parents):
            found["lethe"] += seconds
    return found


def _descends(pid: int, ancestors: list[int], parents: dict[int, int]) -> bool:
    while pid not in ancestors:
        if (pid := parents.get(pid, 0)) == 0:
            return False
    return True
