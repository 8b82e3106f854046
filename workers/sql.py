"""The result of a query as a table, through SQLAlchemy; the transaction is rolled back.

It is outside `workers.data`, which does not depend on a database.
"""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from workers.data.opening import Progress, check_installed
from workers.errors import DatasetError

if TYPE_CHECKING:
    import pyarrow as pa

    from workers.data.tables.table import DataTable

ROWS = 1 << 14  # fetched per batch
# The messages of these errors name tables, columns and syntax; other errors may quote values.
QUOTED = ("ProgrammingError", "OperationalError", "NoSuchModuleError")
_ADDRESS = (
    "the database's address cannot be read: write @, : and / in a password as %40, %3A and %2F"
)


def query_table(
    url: str, query: str, *, most_bytes: int | None = None, progress: Progress | None = None
) -> "DataTable":
    """Return the rows that a query selects, in the query's order: give it an ORDER BY.

    progress: called with the rows so far and 0, because the total is unknown.

    Raises DatasetError if the database cannot be reached or refuses the query, the query
    selects nothing, a column mixes types, or the rows need more than `most_bytes`.
    """
    check_installed()
    import sqlalchemy as sa

    from workers.data.tables.files import MOST_BYTES
    from workers.data.tables.names import check_names
    from workers.data.tables.table import DataTable

    most = MOST_BYTES if most_bytes is None else most_bytes
    try:
        engine = sa.create_engine(_url(url), poolclass=sa.NullPool)
        with engine.connect() as connection:
            streaming = connection.execution_options(stream_results=True, max_row_buffer=ROWS)
            result = streaming.execute(sa.text(query))
            if not result.returns_rows:
                raise DatasetError("the query selects nothing: write a SELECT")
            names = [str(name) for name in result.keys()]  # noqa: SIM118 (rows follow)
            check_names(names)
            return DataTable(table_of(names, result.partitions(ROWS), most, progress))
    except (sa.exc.SQLAlchemyError, ImportError) as error:
        raise DatasetError(_refusal(error)) from None


def table_of(
    names: Sequence[str],
    batches: Iterable[Sequence[Sequence[Any]]],
    most: int,
    progress: Progress | None = None,
) -> "pa.Table":
    """Return batches of rows, as a driver gives them, as one table. Raises as `query_table`."""
    from workers.data.tables.memory import too_large

    parts: list[list[pa.Array]] = [[] for _ in names]
    rows = taken = 0
    for batch in batches:
        for place, name in enumerate(names):
            array = _array(name, [row[place] for row in batch])
            parts[place].append(array)
            taken += array.nbytes
        if taken > most:
            raise DatasetError(too_large(most))
        rows += len(batch)
        if progress is not None:
            progress(rows, 0)
    if not rows:
        raise DatasetError("the query selects no rows: check its conditions")
    return _joined(names, parts)


def _url(text: str) -> Any:
    """Return the parsed address; PostgreSQL gets the driver that Lethe installs."""
    import sqlalchemy as sa

    try:
        url = sa.make_url(text)
    except ValueError:  # its text quotes the text in place of the port
        raise DatasetError(_ADDRESS) from None
    if "@" in (url.host or ""):  # possibly part of the password
        raise DatasetError(_ADDRESS)
    if url.get_backend_name() == "sqlite" and url.database and not Path(url.database).is_file():
        raise DatasetError(
            "--sql: there is no SQLite file of this name: check the path"
        )  # connecting would create it
    if url.drivername in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg")
    return url


def _refusal(error: Exception) -> str:
    """Return a description of the error without the statement, the address or any values."""
    kind = type(error).__name__
    if kind not in QUOTED:
        return f"the database refused the query ({kind}): try it in the database's own shell"
    origin = getattr(error, "orig", None) or error
    line = next(iter(str(origin).splitlines()), kind)
    return f"the database refused the query: {line}"


def _array(name: str, values: list[Any]) -> "pa.Array":
    import pyarrow as pa

    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {UUID}:
        values = [None if value is None else str(value) for value in values]
    elif kinds == {int, float}:  # as SQLite gives a column of numbers
        values = [None if value is None else _float(name, value) for value in values]
    elif kinds == {Decimal}:
        return _decimals(values)
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, ValueError):
        raise DatasetError(_mixed(name)) from None


def _float(name: str, value: float) -> float:
    if float(value) != value:
        raise DatasetError(
            f"{name}: holds an integer above 2**53, which a float cannot hold "
            "exactly: select smaller numbers, or leave the column out if it is an "
            "id"
        )
    return float(value)


def _decimals(values: Sequence[Decimal | None]) -> "pa.Array":
    """Convert NUMERICs of any width; columns without fractions stay integers."""
    import pyarrow as pa

    if all(value is None or value == value.to_integral_value() for value in values):
        try:
            return pa.array(values, pa.decimal128(38, 0))
        except pa.ArrowException:
            pass
    return pa.array([None if value is None else float(value) for value in values], pa.float64())


def _joined(names: Sequence[str], parts: "list[list[pa.Array]]") -> "pa.Table":
    import pyarrow as pa

    columns = []
    for name, arrays in zip(names, parts, strict=True):
        types = {array.type for array in arrays} - {pa.null()}
        if len(types) > 1 and types <= {pa.int64(), pa.float64(), pa.decimal128(38, 0)}:
            types = {pa.float64()}
        if len(types) > 1:
            raise DatasetError(_mixed(name))
        kind = next(iter(types), pa.null())
        try:
            columns.append(pa.chunked_array([array.cast(kind) for array in arrays], kind))
        except pa.ArrowException:
            raise DatasetError(_mixed(name)) from None
    return pa.table(dict(zip(names, columns, strict=True)))


def _mixed(name: str) -> str:
    return f"{name}: mixes types, or has one that no table has: CAST it in the query"
