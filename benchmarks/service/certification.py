"""Certificates a second with requests waiting: alone, and while submissions arrive.

The submissions come at half the rate of accepted ones that was measured just before, in the
same run, and name records of another model: what is compared is who waits for whom.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from sqlalchemy import create_engine, func, select
from sqlalchemy.engine import Engine

from benchmarks.service.installation import Installation
from benchmarks.service.load import drive
from benchmarks.service.servers import created_database
from models import Certificate
from tests.servers import postgres_server, redis_server

CONNECTIONS = 8
PARTS = 3  # of each measurement: what they differ by is its noise
BACKLOG, ARRIVING = "backlog", "arriving"


def measure(
    folder: Path, waiting: int, seconds: float, rows: int = 2700
) -> dict[str, float | list[float]]:
    """Return rates on PostgreSQL and Redis with one API process and one worker.

    waiting: requests of one record each for one model of `rows` rows. seconds: of each of the
    two measurements.
    """
    with postgres_server(durable=True) as server, redis_server() as broker:
        url = created_database(server, "lethe_certification")
        installation = Installation(
            folder / "certification", {"LETHE_DATABASE_URL": url, "LETHE_BROKER_URL": broker}
        )
        with installation.serving(workers=1) as (port,):
            records = iter(installation.register(port, BACKLOG, rows))
            others = iter(installation.register(port, ARRIVING, 20_000))
        with installation.serving() as ports:
            _submit(installation, ports, BACKLOG, records, waiting)
            peak = _submit(installation, ports, ARRIVING, others, 200)
        engine = create_engine(url)
        try:
            with installation.serving(workers=1) as ports:
                while not count_certified(engine):  # the worker starts
                    time.sleep(0.1)
                alone = _rates(engine, seconds)
                arriving = threading.Thread(
                    target=_submit,
                    args=(installation, ports, ARRIVING, others, int(peak * seconds / 2)),
                    kwargs={"rate": peak / 2},
                )
                arriving.start()
                loaded = _rates(engine, seconds)
                arriving.join()
        finally:
            engine.dispose()
    rounds = [under / without for under, without in zip(loaded, alone, strict=True) if without]
    return {
        "certified_per_second_backlog": mean(alone),
        "certified_per_second_under_load": mean(loaded),
        "certified_share_under_load": mean(loaded) / mean(alone) if any(alone) else 0.0,
        "certified_share_under_load_rounds": rounds,
    }


def _rates(engine: Engine, seconds: float) -> list[float]:
    """Return the certificates issued a second, in each of PARTS equal parts of the time."""
    rates = []
    for _ in range(PARTS):
        start, before = time.perf_counter(), count_certified(engine)
        time.sleep(seconds / PARTS)
        rates.append((count_certified(engine) - before) / (time.perf_counter() - start))
    return rates


def count_certified(engine: Engine) -> int:
    """Return how many certificates were issued."""
    with engine.connect() as connection:
        query = select(func.count()).select_from(Certificate)
        return int(connection.execute(query).scalar_one())


def _submit(
    installation: Installation,
    ports: list[int],
    model: str,
    records: Iterator[str],
    count: int,
    rate: float = 0.0,
) -> float:
    made = [installation.submission(model, next(records)) for _ in range(count)]
    return drive(ports, made, CONNECTIONS, rate).rate
