import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, insert, text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError, OperationalError, StatementError
from sqlmodel import Session, col, select

from models import BearerToken, UsedNonce
from models.database.session import UnsupportedDatabaseError, make_engine, reading


@pytest.fixture
def sqlite(sqlite_url: str) -> Iterator[Engine]:
    engine = make_engine(sqlite_url)
    yield engine
    engine.dispose()


def _token(digest: str) -> BearerToken:
    return BearerToken(digest=digest, scope="auditor", name=digest)


def _digests(engine: Engine) -> set[str]:
    with Session(reading(engine)) as session:
        return set(session.exec(select(BearerToken.digest)))


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "mysql://h/d", "duckdb:///x"]
)
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(UnsupportedDatabaseError):
        make_engine(url)


def test_sqlite_is_durable_checks_references_and_zeroes_what_is_deleted(sqlite: Engine) -> None:
    expected = {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "secure_delete": 1,
        "busy_timeout": 15_000,  # a client waits 30 s for its answer
    }
    with sqlite.connect() as connection:
        for pragma, value in expected.items():
            assert connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() == value


def test_a_transaction_is_undone_as_a_whole(engine: Engine) -> None:
    with Session(engine) as session:
        session.add(_token("a"))
        session.flush()
    assert _digests(engine) == set()


def test_a_table_made_in_a_transaction_is_undone_too(engine: Engine) -> None:
    with engine.connect() as connection:
        connection.execute(text("CREATE TABLE undone (a INTEGER)"))
        connection.rollback()
        with pytest.raises(DBAPIError):
            connection.execute(text("SELECT * FROM undone"))


def test_a_savepoint_is_undone_alone_also_as_the_first_statement(engine: Engine) -> None:
    with Session(engine) as session:
        nested = session.begin_nested()
        session.add(_token("undone"))
        session.flush()
        nested.rollback()
        with session.begin_nested():
            session.add(_token("kept"))
        session.commit()
    assert _digests(engine) == {"kept"}
    with Session(engine) as session:
        with session.begin_nested():
            session.add(_token("released"))
        session.rollback()  # a released savepoint still belongs to its transaction
    assert _digests(engine) == {"kept"}


def test_a_reader_sees_one_snapshot(engine: Engine) -> None:
    with Session(reading(engine)) as reader:
        query = select(BearerToken.digest)
        assert list(reader.exec(query)) == []
        with Session(engine) as writer:
            writer.add(_token("a"))
            writer.commit()
        assert list(reader.exec(query)) == []
    assert _digests(engine) == {"a"}


def test_a_reader_cannot_write_and_does_not_spoil_the_pool(engine: Engine) -> None:
    for _ in range(3):
        with Session(reading(engine)) as session:
            session.add(_token("a"))
            with pytest.raises(DBAPIError, match=r"(?i)read.?only"):
                session.flush()
    with Session(engine) as session:
        session.add(_token("b"))
        session.commit()
    assert _digests(engine) == {"b"}


def test_writers_that_read_first_wait_for_each_other(engine: Engine) -> None:
    """Without BEGIN IMMEDIATE, SQLite fails one of them with SQLITE_BUSY_SNAPSHOT."""
    with Session(engine) as session:
        session.add(_token("0"))
        session.commit()
    errors: list[BaseException] = []

    def increment() -> None:
        try:
            for _ in range(20):
                with Session(engine) as session:
                    row = session.exec(select(BearerToken).with_for_update()).one()
                    row.name = str(int(row.name) + 1)
                    session.commit()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=increment) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with Session(engine) as session:
        assert session.exec(select(BearerToken.name)).one() == "80"


def test_sqlite_readers_go_on_while_a_writer_holds_the_lock(sqlite: Engine) -> None:
    with Session(sqlite) as writer:
        writer.add(_token("a"))
        writer.flush()
        assert _digests(sqlite) == set()
        writer.commit()
    assert _digests(sqlite) == {"a"}


def test_a_second_sqlite_writer_waits(sqlite: Engine) -> None:
    first = Session(sqlite)
    first.add(_token("a"))
    first.flush()
    released: list[float] = []

    def release() -> None:
        time.sleep(0.2)
        released.append(time.monotonic())
        first.commit()

    thread = threading.Thread(target=release)
    # The connection moves to the thread and is not used here meanwhile.
    thread.start()
    with Session(sqlite) as second:
        assert set(second.exec(select(BearerToken.digest))) == {"a"}
        assert released
    thread.join()
    first.close()


def test_references_are_checked(engine: Engine) -> None:
    orphan = text(
        "INSERT INTO subjects (id, model_id, client_tag, subject_tag, key_generation) "
        "VALUES (1, 99, 'c', 's', 0)"
    )
    with engine.connect() as connection, pytest.raises(DBAPIError, match=r"(?i)foreign key"):
        connection.execute(orphan)


def test_a_stored_time_keeps_its_instant_and_needs_a_zone(engine: Engine) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=5)))
    with Session(engine) as session:
        session.add(BearerToken(digest="d", scope="s", name="n", created_at=moment))
        session.commit()
        session.expire_all()
        stored = session.exec(select(BearerToken.created_at)).one()
        assert stored == moment
        assert stored.tzinfo is UTC
        assert session.exec(
            select(BearerToken.digest).where(col(BearerToken.created_at) == moment)
        ).all() == ["d"]
        naive = moment.replace(tzinfo=None)
        with pytest.raises(StatementError, match="zone"):
            session.exec(
                select(BearerToken.digest).where(col(BearerToken.created_at) == naive)
            ).all()


def test_a_file_that_cannot_be_opened_is_an_error_at_once(tmp_path: Path) -> None:
    engine = make_engine(f"sqlite:///{tmp_path}/absent/x.db")
    with pytest.raises(OperationalError):
        engine.connect()


@pytest.mark.parametrize(("chosen", "idle"), [("", 15), ("?keepalives_idle=60", "60")])
def test_a_postgresql_machine_that_is_gone_is_noticed(chosen: str, idle: object) -> None:
    """Unasked, Linux would wait for two hours for an answer from a machine without power."""
    engine, asked = make_engine(f"postgresql+psycopg://u@db.example/lethe{chosen}"), {}

    def connect(_dialect: Any, _record: Any, _given: Any, named: dict[str, Any]) -> None:
        asked.update(named)
        raise InterruptedError

    event.listen(engine, "do_connect", connect)
    with pytest.raises(InterruptedError):
        engine.connect()
    wanted = {
        "keepalives_idle": idle,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
    }
    assert {name: asked.get(name) for name in wanted} == wanted


def test_a_writer_that_stands_still_after_many_rows_is_ended(postgres_url: str) -> None:
    """psycopg sends many rows as a pipeline, which stops the server's idle timer."""
    engine = make_engine(postgres_url, stall_s=1)
    held = insert(UsedNonce)
    rows = [{"keyid": "k", "nonce": str(n), "expires_at": datetime.now(UTC)} for n in range(3)]
    with engine.connect() as connection:
        connection.execute(held, rows)
        time.sleep(2)
        with pytest.raises(DBAPIError):
            connection.execute(text("SELECT 1"))
        connection.invalidate()
    engine.dispose()
