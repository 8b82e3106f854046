"""One of several processes leads; when it dies or hangs, another one does."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError
from sqlmodel import Session, select

from app.election import LEASES, RENEW_S, Election
from app.settings import Settings
from models import ScheduleLease
from models.database.session import make_engine
from models.database.types import clock
from workers import schedule


def expire(engine: Engine) -> None:
    """Let the lease end, as time does while its holder hangs."""
    with Session(engine) as session:
        row = session.exec(select(ScheduleLease)).one()
        row.until = clock(session) - timedelta(seconds=1)
        session.add(row)
        session.commit()


def asking(engine: Engine) -> Election:
    """Return an election that asks the database at every call."""
    return Election(engine, now=count(step=RENEW_S).__next__)


def test_one_leads_until_its_lease_ends(engine: Engine) -> None:
    first, second = asking(engine), asking(engine)
    assert [first.leads(), second.leads(), first.leads()] == [True, False, True]
    expire(engine)
    assert [second.leads(), first.leads(), second.leads()] == [True, False, True]
    with Session(engine) as session:
        assert len(session.exec(select(ScheduleLease)).all()) == 1


def test_of_many_at_once_one_leads(engine: Engine) -> None:
    found: list[bool] = []
    ready = threading.Barrier(8)

    def stand() -> None:
        own = Election(engine)
        ready.wait()
        found.append(own.leads())

    threads = [threading.Thread(target=stand) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [*[False] * 7, True]


def test_who_was_told_asks_again_only_in_time(engine: Engine) -> None:
    now = [100.0]
    first, second = (Election(engine, now=lambda: now[0]) for _ in range(2))
    assert first.leads()
    expire(engine)
    assert second.leads()
    assert first.leads()  # for at most RENEW_S more
    now[0] += 5
    assert not first.leads()


def test_a_schedule_that_is_due_more_often_is_taken_over_sooner(engine: Engine) -> None:
    for renew_s in (RENEW_S, 1.0):
        lease = timedelta(seconds=LEASES * renew_s)
        with Session(engine) as session:
            before = clock(session)
        assert Election(engine, renew_s).leads()
        with Session(engine) as session:
            until = session.exec(select(ScheduleLease)).one().until
            assert before + lease <= until <= clock(session) + lease
        expire(engine)


def test_a_process_without_its_database_does_not_lead(engine: Engine, tmp_path: Any) -> None:
    away = make_engine(f"sqlite:///{tmp_path / 'empty.db'}")
    own = asking(away)
    for _ in range(2):
        with pytest.raises(Exception, match="schedule_lease"):
            own.leads()
    away.dispose()


@pytest.fixture
def of_schedule(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Election]:
    """The election of a process of the schedule, with the shortest limit there is."""
    monkeypatch.setenv("LETHE_DATABASE_URL", settings.resolved_database_url)
    monkeypatch.setenv("LETHE_DATA_DIR", str(settings.data_dir))
    monkeypatch.setenv("LETHE_STALL_SECONDS", "2")
    schedule.election.cache_clear()
    yield schedule.election()
    schedule.election.cache_clear()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_process_that_stands_still_while_it_takes_the_lease_keeps_nobody_waiting(
    of_schedule: Election, settings: Settings
) -> None:
    """It holds the row until the server ends its transaction."""
    engines = [make_engine(settings.resolved_database_url, 2)]
    taken: list[bool] = []

    def stands_still(connection: Connection) -> None:
        if len(engines) == 1:
            engines.append(connection.engine)
            taken.append(asking(engines[0]).leads())

    event.listen(Engine, "commit", stands_still)
    try:
        with pytest.raises(DBAPIError):
            of_schedule.leads()
    finally:
        event.remove(Engine, "commit", stands_still)
        for engine in engines:
            engine.dispose()
    assert taken == [True]
