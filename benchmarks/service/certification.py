"""Certificates a second with requests waiting: alone, and while submissions arrive.

Backlogs of one size are worked off, from the first certificate to the last. During the second
one submissions come at half the rate of accepted ones that was measured just before. They name
records of another model: what is compared is who waits for whom. Beside the third one, each of
OTHERS models gets one request: how long the slowest of them takes from its receipt to its
certificate says whether a backlog of one model keeps the others waiting. The same requests
without a backlog are the floor: what a worker needs for them when nothing else waits.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import create_engine, func, select
from sqlalchemy.engine import Engine
from sqlmodel import col

from benchmarks.service.installation import Installation
from benchmarks.service.load import drive
from benchmarks.service.servers import created_database
from models import Certificate, ErasureRequest, Model
from tests.servers import postgres_server, redis_server

CONNECTIONS = 8
OTHERS = 50  # other models
OTHERS_RATE = 5.0  # requests a second for other models
BACKLOG, ARRIVING = "backlog", "arriving"


def measure(folder: Path, waiting: int, seconds: float, rows: int = 2700) -> dict[str, float]:
    """Return rates on PostgreSQL and Redis with one API process and one worker.

    waiting: requests of one record each for one model of `rows` rows. seconds: after which a
    measurement ends though requests wait.
    """
    with postgres_server(durable=True) as server, redis_server() as broker:
        url = created_database(server, "lethe_certification")
        installation = Installation(
            folder / "certification", {"LETHE_DATABASE_URL": url, "LETHE_BROKER_URL": broker}
        )
        with installation.serving(workers=1) as (port,):
            records = iter(installation.register(port, BACKLOG, rows))
            others = iter(installation.register(port, ARRIVING, 20_000))
            small = {
                f"other-{number}": iter(installation.register(port, f"other-{number}", 200))
                for number in range(OTHERS)
            }
        engine = create_engine(url)
        try:
            with installation.serving() as ports:
                _submit(installation, ports, BACKLOG, records, waiting)
            with installation.serving(workers=1):
                alone = _rate(engine, waiting, seconds)
            with installation.serving() as ports:
                _submit(installation, ports, BACKLOG, records, waiting)
                peak = _submit(installation, ports, ARRIVING, others, 200)
            with installation.serving(workers=1) as ports:
                arriving = threading.Thread(
                    target=_submit,
                    args=(installation, ports, ARRIVING, others, int(peak * seconds / 4)),
                    kwargs={"rate": peak / 2},
                )
                arriving.start()
                loaded = _rate(engine, waiting, seconds)
                arriving.join()
            slowest = _slowest_of_others(installation, engine, small, records, waiting // 2)
            floor = _slowest_of_others(installation, engine, small, records, 1)
        finally:
            engine.dispose()
    return {
        "certified_per_second_backlog": alone,
        "certified_per_second_under_load": loaded,
        "certified_share_under_load": loaded / alone if alone else 0.0,
        "other_models_p100_seconds": slowest,
        "other_models_alone_p100_seconds": floor,
    }


def _slowest_of_others(
    installation: Installation,
    engine: Engine,
    others: Mapping[str, Iterator[str]],
    records: Iterator[str],
    waiting: int,
) -> float:
    """Return the most seconds from receipt to certificate of other models' requests.

    They come at OTHERS_RATE, after the first certificates of a backlog of `waiting` requests.
    """
    with installation.serving() as ports:
        _submit(installation, ports, BACKLOG, records, waiting)
    known = count_certified(engine)
    with installation.serving(workers=1) as ports:
        while count_certified(engine) == known:
            time.sleep(0.02)
        begun = datetime.now(UTC)
        made = [installation.submission(name, next(own)) for name, own in others.items()]
        drive(ports, made, CONNECTIONS, OTHERS_RATE)
        query = (
            select(col(Certificate.issued_at), col(ErasureRequest.received_at))
            .join(Model, col(Model.id) == col(ErasureRequest.model_id))
            .join(
                Certificate, col(Certificate.request_id) == col(ErasureRequest.id), isouter=True
            )
            .where(col(Model.ref).in_(list(others)), col(ErasureRequest.received_at) >= begun)
        )
        while True:
            with engine.connect() as connection:
                found = connection.execute(query).all()
            if len(found) == len(others) and all(issued for issued, _ in found):
                return max((issued - received).total_seconds() for issued, received in found)
            time.sleep(0.05)


def _rate(engine: Engine, waiting: int, seconds: float) -> float:
    """Return the certificates issued a second, from the first new ones on.

    Those come in groups: the time ends with the last group within `seconds`, or with the last
    of those that waited.
    """
    known = first = last = count_certified(engine)
    begun = ended = time.perf_counter()
    while last - known < waiting and (first == known or time.perf_counter() - begun < seconds):
        time.sleep(0.02)
        if (now := count_certified(engine)) == last:
            continue
        last, ended = now, time.perf_counter()
        if first == known:
            first, begun = now, ended
    return (last - first) / (ended - begun) if last > first else 0.0


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
