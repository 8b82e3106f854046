"""All rows of a database as lines of JSON, the same for SQLite and PostgreSQL.

A table's first line has its name and columns, each other line a row. JSON has no bytes and no
times: those are {"b": base64} and {"t": ISO 8601 in UTC}; a column of JSON is {"j": value}.
Sealed values stay sealed.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, BinaryIO

from sqlalchemy import Connection, Table, func, insert, select, text
from sqlalchemy.exc import OperationalError, StatementError

import models  # noqa: F401 - registers every table
from lethe.canonical import format_base64, parse_base64
from models.database.types import METADATA, as_stored

FETCH = 500  # rows in memory at once
# What reading a line and binding its values raise for lines of others.
MALFORMED = (
    AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError,
)  # fmt: skip
KINDS = (bool, bytes, datetime, int, str)  # of values of a column that is not JSON


def dump(connection: Connection, file: BinaryIO, most: int | None = None) -> int:
    """Write every row in the connection's snapshot; return their number.

    Raises ValueError: the output exceeds `most` bytes.
    """
    count = written = 0

    def write(value: Any) -> None:
        nonlocal written
        line = json.dumps(value, separators=(",", ":")).encode() + b"\n"
        written += len(line)
        if most is not None and written > most:
            raise ValueError("more rows than the database has room for")
        file.write(line)

    for table in METADATA.sorted_tables:
        names = [column.name for column in table.columns]
        write({"table": table.name, "columns": names})
        rows = connection.execution_options(yield_per=FETCH).execute(select(as_stored(table)))
        for row in rows:
            write([_encode(value) for value in row])
            count += 1
    return count


def load(connection: Connection, lines: Iterator[bytes]) -> int:
    """Insert the rows that `dump` wrote into empty tables; return their number.

    Raises ValueError: the lines do not match this version's tables.
    """
    try:
        return _load(connection, lines)
    except OperationalError:  # of the database: no room, no connection
        raise
    except (*MALFORMED, StatementError):  # without the error itself, which may quote a row
        raise ValueError("the lines are not of this version's tables") from None


def _load(connection: Connection, lines: Iterator[bytes]) -> int:
    table: Table | None = None
    names: list[str] = []
    kinds: list[type] = []
    batch: list[dict[str, Any]] = []
    count = 0
    for line in lines:
        value = json.loads(line)
        if isinstance(value, dict):
            _insert(connection, table, batch)
            table, names = METADATA.tables[value["table"]], value["columns"]
            if names != [column.name for column in table.columns]:
                raise ValueError(f"other columns in {table.name}")
            kinds = kinds_of(table)
            continue
        if table is None:
            raise ValueError("a row of no table")
        row = [_decode(one) for one in value]
        # SQLite would store values of any type, which fail later, wherever they are read.
        for one, kind in zip(row, kinds, strict=True):
            if one is not None and not isinstance(one, kind):
                raise TypeError(f"another type in {table.name}")
        batch.append(dict(zip(names, row, strict=True)))
        count += 1
        if len(batch) == FETCH:
            _insert(connection, table, batch)
    _insert(connection, table, batch)
    if connection.dialect.name == "postgresql":
        advance_sequences(connection)
    return count


def is_empty(connection: Connection) -> bool:
    """Return whether no table has a row."""
    return not any(
        connection.execute(select(text("1")).select_from(table).limit(1)).first()
        for table in METADATA.sorted_tables
    )


def kinds_of(table: Table) -> list[type]:
    """Return for each column the one of KINDS that its values have, or object for JSON."""
    types = [column.type for column in as_stored(table).columns]
    kinds = [getattr(one, "impl", one).python_type for one in types]
    return [kind if kind in KINDS else object for kind in kinds]


def _insert(connection: Connection, table: Table | None, batch: list[dict[str, Any]]) -> None:
    if batch:
        assert table is not None
        connection.execute(insert(as_stored(table)), batch)
        batch.clear()


def advance_sequences(connection: Connection) -> None:
    """Set PostgreSQL's sequences above the stored ids, which were given and not generated."""
    for table in METADATA.sorted_tables:
        for column in table.primary_key.columns:
            name = {"table": f'"{table.name}"', "column": column.name}
            query = text("SELECT pg_get_serial_sequence(:table, :column)")
            sequence = connection.execute(query, name).scalar_one()
            if sequence is None:
                continue  # not a number, perhaps: before PostgreSQL 18 bytes have no maximum
            last = connection.execute(select(func.max(column))).scalar_one()
            if last is not None:
                connection.execute(
                    text("SELECT setval(CAST(:sequence AS regclass), :last)"),
                    {"sequence": sequence, "last": last},
                )


def _encode(value: Any) -> Any:
    if isinstance(value, bytes | memoryview):
        return {"b": format_base64(bytes(value))}
    if isinstance(value, datetime):
        return {"t": value.isoformat()}
    if isinstance(value, dict | list):
        return {"j": value}
    return value


def _decode(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, text),) = value.items()
    if kind == "b":
        return parse_base64(text)
    if kind == "t":
        return datetime.fromisoformat(text)
    if kind != "j" or not isinstance(text, dict | list):
        raise ValueError("a value of no known kind")
    return text
