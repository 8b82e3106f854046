"""Messages of several statements to PostgreSQL: all run, in order, or none."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError, IntegrityError

from models import UsedNonce
from models.database import (
    bulk,
    pipeline,
)
from models.database.bulk import Statement
from models.database.session import unavailable

pytestmark = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def insertion(engine: Engine, *nonces: str) -> Statement:
    rows = [{"keyid": "k", "nonce": nonce, "expires_at": NOW} for nonce in nonces]
    return bulk.insert(engine.dialect, UsedNonce, rows)


def stored(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        query = "SELECT nonce FROM used_nonces ORDER BY nonce"
        return [nonce for (nonce,) in connection.exec_driver_sql(query)]


def test_statements_and_commit_are_one_message(engine: Engine) -> None:
    with engine.connect() as connection:
        bulk.commit(connection, insertion(engine, "a", "b"), Statement("SELECT 1"))
        assert stored(engine) == ["a", "b"]  # the caller's own commit is still due
        connection.commit()
    with engine.begin() as connection:
        assert bulk.run(connection, insertion(engine, "c"), Statement("SELECT 2")) == [
            [],
            [(2,)],
        ]
        assert stored(engine) == ["a", "b"]
    assert stored(engine) == ["a", "b", "c"]


@pytest.mark.parametrize("place", range(3))
def test_after_a_statement_that_fails_nothing_is_committed(engine: Engine, place: int) -> None:
    statements = [insertion(engine, "a"), insertion(engine, "b")]
    statements.insert(place, Statement("SELECT 1 / 0"))
    with engine.connect() as connection, pytest.raises((DBAPIError, RuntimeError)):
        bulk.commit(connection, *statements)
    assert stored(engine) == []
    with engine.connect() as connection:  # and the connection still works
        bulk.commit(connection, insertion(engine, "c"))
    assert stored(engine) == ["c"]


def test_a_count_that_is_wrong_is_not_committed(engine: Engine) -> None:
    """For example, if rows changed between the check of a batch and its writing."""
    with engine.begin() as connection:
        bulk.run(connection, insertion(engine, "a", "b"))
    text = "DELETE FROM used_nonces WHERE nonce > 'a' RETURNING nonce"
    for count in (0, 1, 3):  # of b and z
        with engine.connect() as connection, pytest.raises(RuntimeError, match="committed"):
            bulk.commit(connection, insertion(engine, "z"), Statement(text, returns=count))
        assert stored(engine) == ["a", "b"]
    with engine.connect() as connection:
        bulk.commit(connection, insertion(engine, "z"), Statement(text, returns=2))
    assert stored(engine) == ["a"]


def test_an_error_is_that_of_the_first_that_failed(engine: Engine) -> None:
    twice = insertion(engine, "a"), insertion(engine, "a"), Statement("SELECT nothing")
    with engine.connect() as connection, pytest.raises(IntegrityError):
        bulk.commit(connection, *twice)
    with engine.connect() as connection:  # statements prepared before the failure are kept
        bulk.commit(connection, insertion(engine, "a"))
    assert stored(engine) == ["a"]


def test_who_loses_the_connection_between_two_messages_writes_nothing(engine: Engine) -> None:
    with engine.connect() as connection:
        ((pid,),) = bulk.run(connection, Statement("SELECT pg_backend_pid()"))[0]
        with engine.connect() as other:
            other.exec_driver_sql(f"SELECT pg_terminate_backend({pid}, 5000)")
        with pytest.raises(DBAPIError) as lost:
            bulk.commit(connection, insertion(engine, "a"))
        assert unavailable(lost.value)
        assert lost.value.connection_invalidated
    assert stored(engine) == []


def test_a_message_that_is_given_up_leaves_no_connection_out_of_step(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, engine.connect() as connection:
        patch.setattr(pipeline, "receive", give_up)
        with pytest.raises(KeyboardInterrupt):
            bulk.run(connection, Statement("SELECT 1"))
    for number in range(3):
        with engine.connect() as connection:
            assert bulk.run(connection, Statement(f"SELECT {number}")) == [[(number,)]]


def test_a_message_larger_than_the_buffers_of_both_sides_arrives(engine: Engine) -> None:
    nonces = [f"{number:0100d}" for number in range(100_000)]  # 10 MB each way
    with engine.connect() as connection:
        one = insertion(engine, *nonces)
        (found,) = bulk.run(connection, Statement(f"{one.text} RETURNING nonce", one.values))
        assert [nonce for (nonce,) in found] == nonces
        ((echo,),) = bulk.run(connection, Statement("SELECT repeat('x', 10000000)"))[0]
        assert len(echo) == 10_000_000


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    "bytea": st.binary(max_size=40),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "boolean": st.booleans(),
    "timestamptz": st.datetimes(
        datetime(1900, 1, 1), datetime(2500, 1, 1), timezones=st.just(UTC)
    ),
    "float8": st.floats(allow_nan=False),
}


@pytest.fixture
def driver(engine: Engine) -> Iterator[Any]:
    with engine.connect() as connection:
        yield connection.connection.driver_connection


@pytest.mark.parametrize("kind", VALUES)
def test_values_arrive_as_they_were(driver: Any, kind: str) -> None:
    text = f"SELECT value FROM unnest($1::{kind}[]) WITH ORDINALITY AS g(value, n) ORDER BY n"

    @given(st.lists(st.none() | VALUES[kind], min_size=1, max_size=8))
    @settings(deadline=None, max_examples=60)
    def check(values: list[Any]) -> None:
        (found,) = pipeline.run(driver, [(text, [pipeline.array(values)])])
        assert [value for (value,) in found] == values

    check()


def test_a_text_that_postgresql_cannot_hold_is_refused_before_it_is_sent(
    engine: Engine,
) -> None:
    with pytest.raises(psycopg.DataError):
        insertion(engine, "a\0b")
