"""Handwritten statements: the right number of rows, and errors as from SQLAlchemy."""

import time
from datetime import UTC, datetime

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError
from sqlmodel import col

from models import UsedNonce
from models.database import bulk
from models.database.bulk import Statement
from models.database.session import make_engine


def test_another_number_of_rows_than_was_meant_is_an_error(engine: Engine) -> None:
    with engine.begin() as connection:
        one = Statement("SELECT 1", returns=1)
        assert bulk.run(connection, one, Statement("SELECT 2")) == [[(1,)], [(2,)]]
        with pytest.raises(RuntimeError, match="nothing is committed"):
            bulk.run(connection, one, Statement("SELECT 2", returns=2))


def test_errors_are_those_of_sqlalchemy(engine: Engine) -> None:
    with engine.connect() as connection, pytest.raises(DBAPIError) as raised:
        bulk.run(connection, Statement("SELECT no_such_column"))
    assert not raised.value.connection_invalidated


def test_a_writer_that_stands_still_after_a_pipeline_is_ended(postgres_url: str) -> None:
    engine = make_engine(postgres_url, stall_s=1)
    with engine.connect() as connection:
        connection.begin()
        bulk.run(connection, Statement("SELECT 1"), Statement("SELECT 2"))
        time.sleep(2)
        with pytest.raises(DBAPIError):
            bulk.run(connection, Statement("SELECT 3"))
        connection.invalidate()
    engine.dispose()


def test_rows_are_inserted_in_blocks_and_all_of_them_or_none(engine: Engine) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    nonces = [f"nonce-{number}" for number in range(2 * bulk.BLOCK + 1)]

    def blocks(key: str, values: list[str]) -> list[list[list[object]]]:
        parts = [values[: bulk.BLOCK], values[bulk.BLOCK :]]
        return [[[key] * len(part), [*part], [at] * len(part)] for part in parts]

    names = ("keyid", "nonce", "expires_at")
    with engine.begin() as connection:
        bulk.insert_blocks(connection, UsedNonce, names, iter(blocks("key", nonces)))
    with pytest.raises(DBAPIError), engine.begin() as connection:
        bulk.insert_blocks(
            connection, UsedNonce, names, [*blocks("other", nonces), *blocks("key", nonces[:1])]
        )
    with engine.connect() as connection:
        held = select(col(UsedNonce.keyid), func.count()).group_by(col(UsedNonce.keyid))
        assert connection.execute(held).all() == [("key", len(nonces))]
        if engine.dialect.name == "sqlite":
            assert connection.exec_driver_sql("PRAGMA cache_size").scalar() == -2000


def test_what_was_prepared_outlives_a_rollback(postgres_url: str) -> None:
    """psycopg deallocates all statements of a connection once it has prepared its own."""
    engine = make_engine(postgres_url)
    with engine.connect() as connection:
        prepared = Statement("SELECT 1"), Statement("SELECT 2")
        assert bulk.run(connection, *prepared) == [[(1,)], [(2,)]]
        for _ in range(10):
            connection.execute(text("SELECT 3"))
        connection.rollback()
        connection.execute(text("SELECT 3"))
        assert bulk.run(connection, *prepared) == [[(1,)], [(2,)]]
    engine.dispose()
