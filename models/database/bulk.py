"""Handwritten statements over many rows at once, compiled once.

For transactions that hold the log's lock, for which all others wait. SQLAlchemy's statements
cost more to build and read than the database takes to run them, and each is a round trip.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Dialect, LargeBinary, Table
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine
from sqlmodel import SQLModel

from models.database.types import SealedName

ROWS = "{rows}"  # placeholder in a statement's text for its rows, the relation `given`
BLOCK = 5000  # rows in one statement, held in memory as Python objects
CACHE_KIB, USUAL_CACHE_KIB = 65_536, 2000  # SQLite's page cache; the latter is its default
_ALL = f"SELECT * FROM {ROWS} WHERE true"  # noqa: S608
Rows = list[list[tuple[Any, ...]]]  # of each statement
_Key = tuple[str, tuple[tuple[str, TypeEngine[Any]], ...]]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement in the driver's syntax; it runs once for each of `values`.

    returns: the number of rows it must return, None if any number is allowed.
    """

    text: str
    values: Sequence[Sequence[Any]] = ((),)
    returns: int | None = None


def over(
    dialect: Dialect,
    text: str,
    types: Mapping[str, TypeEngine[Any]],
    rows: Sequence[Sequence[Any]],
    returns: int | None = None,
) -> Statement:
    """Return a statement whose relation `given` has `rows`, with columns named as `types`.

    On PostgreSQL the rows are arrays, so that the text does not depend on their number and the
    server plans it once. On SQLite the statement runs once per row.
    """
    return _over(dialect, text, types, list(zip(*rows, strict=True)), returns)


def _over(
    dialect: Dialect,
    text: str,
    types: Mapping[str, TypeEngine[Any]],
    given: Sequence[Sequence[Any]],
    returns: int | None = None,
) -> Statement:
    """As `over`, with columns instead of rows."""
    compiled, binders = _compiled(dialect, text, types)
    columns = [bind(column) for bind, column in zip(binders, given, strict=True)]
    if dialect.name == "sqlite":
        return Statement(compiled, list(zip(*columns, strict=True)), returns)
    from models.database import pipeline

    return Statement(compiled, [[pipeline.array(column) for column in columns]], returns)


def insert(
    dialect: Dialect, model: type[SQLModel], rows: Sequence[Mapping[str, Any]]
) -> Statement:
    """Return the statement that inserts rows with the same columns.

    Omitted columns get the database's default, mostly NULL; the caller must supply the model's
    defaults (`defaults`).
    """
    text, kinds = _insertion(_table(model), tuple(rows[0]))
    return over(dialect, text, kinds, [tuple(row.values()) for row in rows])


def insert_blocks(
    connection: Connection,
    model: type[SQLModel],
    names: Sequence[str],
    blocks: Iterable[Sequence[Sequence[Any]]],
) -> None:
    """Insert blocks of rows, with one block in memory at a time. Raises DBAPIError.

    blocks: each has the columns `names`, of about BLOCK rows. Omitted columns as in `insert`.
    """
    text, kinds = _insertion(_table(model), tuple(names))
    if small := connection.dialect.name == "sqlite":
        # Random values dirty many index pages, and each eviction of one would be a write.
        connection.exec_driver_sql(f"PRAGMA cache_size=-{CACHE_KIB}")
    try:
        for block in blocks:
            run(connection, _over(connection.dialect, text, kinds, block))
    finally:
        if small:
            connection.exec_driver_sql(f"PRAGMA cache_size=-{USUAL_CACHE_KIB}")


def types(model: type[SQLModel], **columns: str) -> dict[str, TypeEngine[Any]]:
    """Return the types of a model's columns by their names in `given`."""
    return {name: _table(model).c[column].type for name, column in columns.items()}


def _table(model: type[SQLModel]) -> Table:
    found: Table = model.__table__  # type: ignore[attr-defined]
    return found


def defaults(model: type[SQLModel]) -> dict[str, Any]:
    """Return the constant defaults of a model's columns."""
    given = {name: field.get_default() for name, field in model.model_fields.items()}
    return {name: value for name, value in given.items() if isinstance(value, int | str)}


def run(connection: Connection, *statements: Statement) -> Rows:
    """Run statements in order and return the rows of each, as stored.

    PostgreSQL gets them in one message, so an error is that of the first failing statement.

    Raises DBAPIError: as from SQLAlchemy; RuntimeError: a statement returned the wrong number
    of rows.
    """
    with _driver(connection) as driver:
        if connection.dialect.name == "sqlite":
            found = [_run_on_sqlite(driver, one) for one in statements]
        else:
            from models.database import pipeline  # psycopg, which SQLite does not need

            found = pipeline.run(driver, [(one.text, one.values[0]) for one in statements])
    for one, rows in zip(statements, found, strict=True):
        if one.returns not in (None, len(rows)):
            raise _other_rows()
    return found


def commit(connection: Connection, *statements: Statement) -> None:
    """Run statements in order, and on PostgreSQL commit too, in one message.

    The caller must commit afterwards: this commits on SQLite, and informs SQLAlchemy on both.

    Raises:
        DBAPIError: As from SQLAlchemy. After a lost connection, it may be committed.
        RuntimeError: A statement returned the wrong number of rows; nothing is committed.
    """
    if connection.dialect.name == "sqlite":
        run(connection, *statements)
        return
    from models.database import pipeline

    with _driver(connection) as driver:
        try:
            pipeline.run(driver, [_counted(one) for one in statements], commit=True)
        except pipeline.CountError:
            raise _other_rows() from None


def _counted(one: Statement) -> tuple[str, Sequence[Any]]:
    """Return a statement that fails in the server if it returns the wrong number of rows."""
    values = one.values[0]
    if one.returns is None:
        return one.text, values
    wrong = f"(count(*) = ${len(values) + 1}::bigint)::int"
    text = f"WITH done AS ({one.text}) SELECT 1 / {wrong} FROM done"  # noqa: S608
    return text, [*values, str(one.returns).encode()]


def _other_rows() -> RuntimeError:
    # Should not happen: callers hold the log's lock and have read the rows under it.
    return RuntimeError("other rows than were read were there: nothing is committed")


@contextmanager
def _driver(connection: Connection) -> Iterator[Any]:
    """The driver's connection; its errors are wrapped as SQLAlchemy does."""
    try:
        yield connection.connection.driver_connection
    except connection.dialect.loaded_dbapi.Error as error:
        raise _wrapped(connection, error) from error


def _run_on_sqlite(driver: Any, one: Statement) -> list[tuple[Any, ...]]:
    if len(one.values) > 1 and " RETURNING " not in one.text and one.text.startswith("INSERT"):
        driver.executemany(one.text, one.values)
        return []
    return [row for given in one.values for row in driver.execute(one.text, given)]


def _wrapped(connection: Connection, error: Exception) -> BaseException:
    """Return the error that SQLAlchemy would raise, after invalidating a lost connection."""
    dialect = connection.dialect
    gone = dialect.is_disconnect(error, connection.connection.driver_connection, None)  # type: ignore[arg-type]
    if gone:
        connection.invalidate(error)
    return DBAPIError.instance(
        None,
        None,
        error,
        dialect.loaded_dbapi.Error,
        hide_parameters=True,
        connection_invalidated=gone,
        dialect=dialect,
    )


_Binder = Callable[[Sequence[Any]], list[Any]]
_known: WeakKeyDictionary[Dialect, dict[_Key, tuple[str, list[_Binder]]]] = WeakKeyDictionary()


def _compiled(
    dialect: Dialect, text: str, types: Mapping[str, TypeEngine[Any]]
) -> tuple[str, list[_Binder]]:
    of_dialect = _known.setdefault(dialect, {})
    key = text, tuple(types.items())
    if (found := of_dialect.get(key)) is None:
        relation = _relation(dialect, types)
        binders = [_binder(dialect, kind) for kind in types.values()]
        if dialect.name == "sqlite":
            # VALUES for the one row avoids a temporary table: half the time.
            text = text.replace(_ALL, f"VALUES ({', '.join('?' for _ in types)})")
        found = of_dialect[key] = text.replace(ROWS, relation), binders
    return found


def _binder(dialect: Dialect, kind: TypeEngine[Any]) -> _Binder:
    """Return the conversion of a column's values to the driver's values."""
    if isinstance(kind, SealedName):
        return lambda values: kind.bind_all(values, dialect)
    # Both drivers take bytes as they are; SQLAlchemy would wrap each in a memoryview.
    if type(kind) is LargeBinary:
        return list
    process = kind.dialect_impl(dialect).bind_processor(dialect)
    return list if process is None else lambda values: [process(value) for value in values]


def _relation(dialect: Dialect, types: Mapping[str, TypeEngine[Any]]) -> str:
    names = [dialect.identifier_preparer.quote(name) for name in types]
    if dialect.name == "sqlite":
        return f"(SELECT {', '.join(f'? AS {name}' for name in names)}) AS given"
    # Without the length: a cast would truncate values that the column must refuse.
    kinds = [dialect.type_compiler_instance.process(kind) for kind in types.values()]
    arrays = ", ".join(
        f"${place}::{kind.partition('(')[0]}[]" for place, kind in enumerate(kinds, 1)
    )
    return f"unnest({arrays}) AS given({', '.join(names)})"


@lru_cache(maxsize=64)
def _insertion(table: Table, names: tuple[str, ...]) -> tuple[str, dict[str, TypeEngine[Any]]]:
    columns = ", ".join(f'"{name}"' for name in names)
    text = f'INSERT INTO "{table.name}" ({columns}) {_ALL}'
    return text, {name: table.c[name].type for name in names}
