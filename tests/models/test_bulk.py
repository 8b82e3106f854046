"""Statements written by hand: as many rows as were meant, and errors as from SQLAlchemy."""

import time

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError

from models import bulk
from models.bulk import Statement
from models.session import make_engine


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
