"""The rows of a small database, made up, with a value of each type."""

import io
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, insert

from app.backup import rows
from models.database.types import METADATA, as_stored

SAMPLES: dict[type, Any] = {
    bool: True,
    bytes: b"\0\xff",
    datetime: datetime(2026, 11, 27, 12, tzinfo=UTC),
    int: 7,
    object: {"a": [1]},
    str: "a text",
}


def example(connection: Connection) -> bytes:
    """Return the lines of a database in which each table that needs no other has a row."""
    for table in METADATA.sorted_tables:
        if not table.foreign_keys:
            names, kinds = table.columns.keys(), rows.kinds_of(table)
            made = {name: SAMPLES[kind] for name, kind in zip(names, kinds, strict=True)}
            connection.execute(insert(as_stored(table)).values(made))
    file = io.BytesIO()
    rows.dump(connection, file)
    return file.getvalue()
