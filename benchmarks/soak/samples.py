"""What a running service holds: memory, open files and threads, files, rows, connections."""

import os
from contextlib import suppress
from pathlib import Path

import redis
from sqlalchemy import func, select, text
from sqlalchemy.engine import Engine
from sqlmodel import SQLModel

from benchmarks.soak.service import LASTING, Service
from models.database.session import reading

MIB = 2**20


def sample(service: Service, engine: Engine) -> dict[str, float]:
    """Return what is held now, by name; bytes are in MiB.

    Of processes those that are never killed: what is young holds little.
    """
    held: dict[str, float] = {}
    for (role, life), process in service.running.items():
        if life == LASTING:
            with suppress(OSError):  # it ended
                of_it = of_process(process.pid)
                held |= {f"{role} {name}": value for name, value in of_it.items()}
    held |= of_files(service.data)
    held |= of_database(engine)
    broker = service.installation.environment.get("LETHE_BROKER_URL", "")
    if broker.startswith("redis"):
        held |= of_redis(broker)
    return held


def of_process(pid: int) -> dict[str, float]:
    """Return memory that is a process's own share (Pss), open files and threads."""
    root = Path("/proc") / str(pid)
    lines = (root / "smaps_rollup").read_text().splitlines()
    [pss] = [int(line.split()[1]) for line in lines if line.startswith("Pss:")]
    return {
        "memory MiB": pss * 1024 / MIB,
        "open files": float(len(os.listdir(root / "fd"))),
        "threads": float(len(os.listdir(root / "task"))),
    }


def of_files(data: Path) -> dict[str, float]:
    """Return number and size of the files below each entry of the data folder."""
    held: dict[str, float] = {}
    for entry in data.iterdir():
        sizes = []
        for path in entry.rglob("*") if entry.is_dir() else (entry,):
            with suppress(OSError):  # gone meanwhile
                if path.is_file():
                    sizes.append(path.stat().st_size)
        held[f"data/{entry.name} MiB"] = sum(sizes) / MIB
        if entry.is_dir():
            held[f"data/{entry.name} files"] = float(len(sizes))
    return held


def of_database(engine: Engine) -> dict[str, float]:
    """Return the rows of each table; of PostgreSQL also its size and its connections."""
    held: dict[str, float] = {}
    with reading(engine).connect() as connection:
        for table in SQLModel.metadata.sorted_tables:
            query = select(func.count()).select_from(table)
            held[f"rows of {table.name}"] = float(connection.execute(query).scalar_one())
        if engine.dialect.name == "postgresql":
            size = text("SELECT pg_database_size(current_database())")
            held["database MiB"] = connection.execute(size).scalar_one() / MIB
            used = text("SELECT count(*) FROM pg_stat_activity WHERE datname IS NOT NULL")
            held["database connections"] = float(connection.execute(used).scalar_one())
    return held


def of_redis(url: str) -> dict[str, float]:
    """Return the keys of a broker, and its memory."""
    with redis.Redis.from_url(url) as broker:
        return {
            "broker keys": float(broker.dbsize()),
            "broker MiB": broker.info("memory")["used_memory"] / MIB,
        }
