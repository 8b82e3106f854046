"""All rows of a database as lines, and lines of others: read, or refused in one way."""

import base64
import io
import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import Connection, text

from app.backup import rows
from app.backup.restore import MOST_LINE
from models.database.session import make_engine, opened_engine
from models.database.types import METADATA
from models.record import MOST_BLOCK
from tests.app.backup.example import example

DEEP = 4000  # deeper than Python's JSON goes
NO_NUMBERS: Any = (
    None, [], [1], {}, {"j": 1, "b": ""}, {"b": "?"}, {"b": 7}, {"b": "AAAA"}, {"t": 7},
    {"t": "2026"}, {"t": "2026-11-27T00:00:00"}, {"t": "0001-01-01T00:00:00+23:59"}, {"x": 1},
    10**30, -(10**30), 0.5, "\ud800", {"j": {}}, "a text",
)  # fmt: skip


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    """A writing transaction on an empty database, which is never committed."""
    engine = make_engine(database_url)
    with engine.connect() as opened:
        yield opened
    engine.dispose()


@pytest.fixture
def lines(database_url: str) -> list[Any]:
    """The values of the lines of a database that had some rows, and is empty again."""
    with opened_engine(database_url) as engine, engine.connect() as connection:
        return [json.loads(line) for line in example(connection).splitlines()]


def load(connection: Connection, lines: list[Any]) -> int:
    return rows.load(connection, iter([json.dumps(line).encode() for line in lines]))


def refused(connection: Connection, lines: list[Any]) -> None:
    with pytest.raises(ValueError, match="not of this version's tables"):
        load(connection, lines)
    connection.rollback()


def of_kind(lines: list[Any], known: type) -> tuple[Any, list[Any], int]:
    """Return the head of a table, its row, and the place of a column of this type."""
    for head, row in pairwise(lines):
        if isinstance(head, dict) and isinstance(row, list):
            table = METADATA.tables[head["table"]]
            kinds = zip(table.columns, rows.kinds_of(table), strict=True)
            for place, (column, kind) in enumerate(kinds):
                if kind is known and not column.nullable:
                    return head, row, place
    raise AssertionError(f"no column of {known}")


def test_rows_are_read_back(connection: Connection, lines: list[Any]) -> None:
    count = load(connection, lines)
    assert count == sum(isinstance(line, list) for line in lines) > 10
    file = io.BytesIO()
    rows.dump(connection, file)
    assert [json.loads(line) for line in file.getvalue().splitlines()] == lines


def test_a_restore_takes_the_line_of_the_largest_rows_of_an_owner() -> None:
    """Otherwise a backup would be made that cannot be restored."""
    other_columns = 4096
    assert len(base64.b64encode(bytes(3))) * MOST_BLOCK // 3 + other_columns < MOST_LINE


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_rows_are_read_back_before_postgresql_18(
    connection: Connection, lines: list[Any]
) -> None:
    """In earlier versions bytes have no maximum (manual, 9.21)."""
    renamed = "UPDATE pg_proc SET proname = 'max_of_18' WHERE oid = 'max(bytea)'::regprocedure"
    connection.execute(text(renamed))
    assert load(connection, lines) == sum(isinstance(line, list) for line in lines)


def test_a_row_before_any_table_is_refused(connection: Connection) -> None:
    firsts: list[Any] = [[], ["a"], 7, None, "a", {}, {"table": [], "columns": []}]
    for first in firsts:
        refused(connection, [first])


def test_a_line_that_is_no_json_is_refused(connection: Connection) -> None:
    for line in (b"[" * DEEP + b"]" * DEEP, b'{"a":' * DEEP, b"\xff", b""):
        with pytest.raises(ValueError, match="not of this version's tables"):
            rows.load(connection, iter([line]))


def test_a_value_that_a_column_cannot_hold_is_refused(
    connection: Connection, lines: list[Any]
) -> None:
    """SQLite would store some of them, which then fail wherever they are read."""
    head, row, place = of_kind(lines, int)
    for wrong in NO_NUMBERS:
        refused(connection, [head, [*row[:place], wrong, *row[place + 1 :]]])


@pytest.mark.parametrize("known", rows.KINDS)
def test_each_column_has_values_of_its_type(
    connection: Connection, lines: list[Any], known: type
) -> None:
    head, row, place = of_kind(lines, known)
    other = "a text" if known is not str else {"b": "AAAA"}
    refused(connection, [head, [*row[:place], other, *row[place + 1 :]]])


def test_a_row_that_is_there_twice_is_refused(connection: Connection, lines: list[Any]) -> None:
    head, row, _ = of_kind(lines, int)
    refused(connection, [head, row, row])
