"""Load a service for hours while processes of it are killed; say what was lost and what grew.

    python -m benchmarks.soak [--hours H] [--servers] [--json FILE] [--out docs/benchmarks]

On SQLite and the file broker, or with --servers on PostgreSQL and Redis, which are started
here. Requests are submitted, withdrawn and certified, rows contributed, models registered and
deleted, keys registered and revoked, the log read and mirrored, data destroyed, backed up and
examined. Exits with 1 if something acknowledged is missing, doubled or stuck, fsck finds
something, a process that was not killed ended, or something grew that is not the log's.
"""

import argparse
import json
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from itertools import cycle
from pathlib import Path
from typing import Any

from sqlalchemy.engine import Engine
from sqlmodel import Session, col, func, select

from app.backup.check import fsck_installation
from app.ledger.startup import open_ledger
from app.settings import Settings
from app.vault.master import RootSecret
from benchmarks.faults.acknowledged import missing
from benchmarks.faults.judgement import doubled
from benchmarks.service.report import machine
from benchmarks.service.servers import created_database
from benchmarks.soak import report
from benchmarks.soak.growth import Sample, trends
from benchmarks.soak.load import FINAL, Load
from benchmarks.soak.samples import sample
from benchmarks.soak.service import KILLED, Service
from models import ErasureRequest, LogEntry
from models.database.session import opened_engine, reading
from models.database.types import seal_columns
from tests.servers import postgres_server, redis_server

SAMPLES = 240
VICTIMS = (("api",), ("worker",), ("api", "worker"))


def main() -> None:
    """Run a soak."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--rate", type=float, default=0.5, help="erasure requests a second")
    parser.add_argument("--kill", type=float, default=90.0, help="seconds between two kills")
    parser.add_argument("--servers", action="store_true", help="PostgreSQL and Redis")
    parser.add_argument("--json", type=Path, help="write the report there")
    parser.add_argument(
        "--out", type=Path, help="renew soak.json, soak.md and its figure there"
    )
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # what was started is stopped
    with tempfile.TemporaryDirectory() as folder, _environment(servers=chosen.servers) as where:
        service = Service(Path(folder), where)
        found = run(service, 3600 * chosen.hours, rate=chosen.rate, kill_s=chosen.kill)
    for name in report.VERDICT:
        print(f"{name:16} {len(found[name]):>6}")
    for name in (*report.VERDICT, "grown"):
        for one in found[name]:
            print(f"{name}: {one}")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")
    if chosen.out is not None:
        report.renew(chosen.out, "servers" if chosen.servers else "files", found)
    sys.exit(any(found[name] for name in report.VERDICT))


@contextmanager
def _environment(*, servers: bool) -> Iterator[dict[str, str]]:
    """Yield where database and broker are."""
    with ExitStack() as stack:
        if not servers:
            yield {}
            return
        postgres = stack.enter_context(postgres_server(durable=True))
        yield {
            "LETHE_DATABASE_URL": created_database(postgres, "lethe_soak"),
            "LETHE_BROKER_URL": stack.enter_context(redis_server()),
        }


def run(service: Service, seconds: float, *, rate: float, kill_s: float) -> dict[str, Any]:
    """Return the report of one soak; what `report.VERDICT` names in it should be empty."""
    where = service.installation.environment
    settings = Settings(
        data_dir=service.data,
        database_url=where.get("LETHE_DATABASE_URL", ""),
        origin=where["LETHE_ORIGIN"],
    )
    with opened_engine(settings.resolved_database_url) as engine:
        with service.at_work():
            load = Load(service, rate)
            load.prepare()
            at_work = threading.Thread(target=load.run, args=(seconds,), daemon=True)
            at_work.start()
            samples, kills, ended = _watch(service, engine, seconds, kill_s)
            at_work.join()
        found = trends(samples)
        return {
            "machine": machine(),
            "seconds": round(seconds),
            "entries": samples[-1].entries,
            "kills": kills,
            "done": dict(sorted(load.counts.items())),
            **_judge(settings, engine, load),
            "wrong": load.wrong,
            "ended": ended,
            "grown": [one.name for one in found if one.grown],
            "trends": [asdict(one) for one in found],
            "samples": [asdict(one) for one in samples],
        }


def _watch(
    service: Service, engine: Engine, seconds: float, kill_s: float
) -> tuple[list[Sample], int, list[str]]:
    """Sample and kill for so long; return samples, kills, and who ended by itself."""
    samples: list[Sample] = []
    ended: dict[str, None] = {}
    over = threading.Event()
    kills: list[str] = []
    killer = threading.Thread(target=_kill, args=(service, kill_s, over, kills), daemon=True)
    killer.start()
    begun = time.monotonic()
    while (now := time.monotonic()) - begun < seconds:
        samples.append(Sample(round(now - begun, 1), _entries(engine), sample(service, engine)))
        ended |= dict.fromkeys(service.ended())
        if len(samples) % 20 == 0:
            print(f"{now - begun:.0f} s, {samples[-1].entries} entries", flush=True)
        time.sleep(seconds / SAMPLES)
    over.set()
    killer.join()
    return samples, len(kills), list(ended)


def _kill(service: Service, seconds: float, over: threading.Event, killed: list[str]) -> None:
    """Every so many seconds kill processes and start them again."""
    for roles in cycle(VICTIMS):
        if over.wait(seconds):
            return
        for role in roles:
            service.kill(role)
            killed.append(role)
        for role in roles:
            service.start(role, KILLED)


def _entries(engine: Engine) -> int:
    with Session(reading(engine)) as session:  # a writer's turn may not come in time
        return session.exec(select(func.count()).select_from(LogEntry)).one()


def _judge(settings: Settings, engine: Engine, load: Load) -> dict[str, list[str]]:
    seal_columns(engine, RootSecret.load(settings))
    ledger = open_ledger(settings, engine)
    with Session(engine) as session:
        lost = [
            f"{kind}: {why}"
            for kind, value in load.told
            if (why := missing(settings, ledger, session, kind, value)) is not None
        ]
        unfinished = col(ErasureRequest.state).not_in(FINAL)
        states = Counter(session.exec(select(ErasureRequest.state).where(unfinished)))
        twice = doubled(session)
    fsck = fsck_installation(settings, ledger)
    return {
        "lost": lost,
        "duplicated": twice,
        "stuck": [f"{number} requests are {state}" for state, number in states.items()],
        "fsck_failures": [f"{one.check}: {one.detail}" for one in fsck.findings],
    }


if __name__ == "__main__":
    main()
