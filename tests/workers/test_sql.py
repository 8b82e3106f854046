"""Results of queries as tables, and databases that refuse."""

import datetime
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
import sqlalchemy as sa

from workers.errors import DatasetError
from workers.sql import query_table, table_of

SECRET = "hunter2"


@pytest.fixture
def database(tmp_path: Path) -> str:
    path = tmp_path / "rows.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (id TEXT, n INTEGER, x REAL, mixed)")
        rows = [("007", 1, 0.5, 1), ("8", None, 1.5, f"{SECRET}")]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    connection.close()
    return f"sqlite:///{path}"


def test_the_rows_of_a_query_are_a_table(database: str) -> None:
    seen: list[tuple[int, int]] = []
    table = query_table(
        database,
        "SELECT id, n, x FROM t ORDER BY id",
        progress=lambda done, total: seen.append((done, total)),
    )
    assert table.ids("id").tolist() == ["007", "8"]
    assert [column.kind for column in table.columns] == ["text", "integer", "real"]
    assert table.column("n").nulls == 1
    assert table.numbers("x").tolist() == [0.5, 1.5]
    assert seen == [(2, 0)]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT nowhere FROM t", "refused the query: no such column: nowhere"),
        ("SELECT FROM", "refused the query: near"),
        ("SELECT mixed FROM t", "mixed: mixes types"),
        ("SELECT id FROM t WHERE 0", "the query selects no rows"),
        ("SELECT id, id FROM t", "id: two columns"),
        ("DELETE FROM t", "the query selects nothing"),
        ("SELECT x'00' AS b", "b: nested, binary"),
    ],
)
def test_other_queries_are_refused(query: str, message: str, database: str) -> None:
    with pytest.raises(DatasetError, match=message) as error:
        query_table(database, query).ids("b")
    assert SECRET not in str(error.value)
    assert len(query_table(database, "SELECT id FROM t")) == 2  # nothing was deleted


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////nowhere/rows.db",
        "nothing",
        f"nosuch://user:{SECRET}@127.0.0.1/db",
        f"postgresql://user:{SECRET}@127.0.0.1:1/db?connect_timeout=1",
    ],
)
def test_a_database_that_cannot_be_had_is_a_problem(url: str) -> None:
    with pytest.raises(DatasetError) as error:
        query_table(url, "SELECT 1")
    assert SECRET not in str(error.value)


def test_a_result_above_the_bound_is_refused(database: str) -> None:
    numbers = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c"
    with pytest.raises(DatasetError, match="needs more than"):
        query_table(database, numbers, most_bytes=1 << 20)


def joined(values: list[Any]) -> pa.Table:
    """Return values as if two of them were fetched at a time."""
    rows = [(value,) for value in values]
    return table_of(["c"], [rows[start : start + 2] for start in range(0, len(rows), 2)], 1024)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2, 3.5], pa.float64()),
        ([None, None, 3], pa.int64()),
        ([Decimal(1), Decimal("2.50"), Decimal(3)], pa.float64()),
        ([Decimal(10**25), Decimal(2)], pa.decimal128(38, 0)),
        ([UUID(int=1), None, UUID(int=2)], pa.string()),
        ([datetime.datetime(2024, 1, 1)], pa.timestamp("us")),
        ([True, None], pa.bool_()),
    ],
)
def test_types_of_drivers(values: list[Any], kind: pa.DataType) -> None:
    assert joined(values).schema.field("c").type == kind


@pytest.mark.parametrize("values", [[1, 2, "a"], ["a", 1], [2**70], [2**53 + 1, 0.5]])
def test_columns_of_several_types_are_refused(values: list[Any]) -> None:
    with pytest.raises(DatasetError, match="c: "):
        joined(values)


def test_a_postgresql_address_gets_the_driver_that_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(url: sa.URL, **_: object) -> None:
        assert url == sa.make_url("postgresql+psycopg://h/d")
        raise sa.exc.NoSuchModuleError("asked")

    monkeypatch.setattr(sa, "create_engine", asked)
    for scheme in ("postgresql", "postgres"):
        with pytest.raises(DatasetError, match="asked"):
            query_table(f"{scheme}://h/d", "SELECT 1")


@pytest.mark.parametrize("password", [f"a@b:{SECRET}", f"a@{SECRET}"])
def test_no_part_of_a_password_is_quoted(password: str) -> None:
    address = f"postgresql://ann:{password}@127.0.0.1/rows"
    with pytest.raises(DatasetError, match="write @, : and / in a password as %40") as error:
        query_table(address, "SELECT 1")
    assert SECRET not in str(error.value)
