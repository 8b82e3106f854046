"""Parquet, CSV, Arrow and .npz files, and folders of one of them, read within a bound.

The columns are chosen before any data is read, and the file's declared size is compared with
the bound first. The declared size may be wrong, so the bound is also enforced while reading.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from workers.data.tables.arrays import read_arrays
from workers.data.tables.kinds import kind_of
from workers.data.tables.memory import bounded, too_large
from workers.data.tables.names import check_names
from workers.data.tables.table import DataTable
from workers.errors import DatasetError

MOST_BYTES = 4 << 30  # of the chosen columns, in memory
MOST_FILES = 10_000  # of a folder
BATCH = 1 << 16  # rows read at a time
BLOCK = 1 << 22  # bytes of a CSV read at a time, and its longest row
PARQUET = (".parquet", ".pq")
ARROW = (".feather", ".arrow", ".ipc")
CSV = (".csv", ".tsv")
NPZ = ".npz"
SUFFIXES = (*PARQUET, *CSV, *ARROW, NPZ)
_ARROW_MAGIC = b"ARROW1"

# From the names of a file's columns to those to read.
Choose = Callable[[Sequence[str]], Sequence[str]]
# Amount read and total: bytes of a CSV, rows of other files.
Progress = Callable[[int, int], None]


def read_table(
    path: Path,
    choose: Choose = tuple,
    *,
    most_bytes: int = MOST_BYTES,
    progress: Progress = lambda done, total: None,
) -> DataTable:
    """Return the chosen columns of a file, or of a folder's files in the order of their names.

    Raises DatasetError for an unknown format, a damaged or empty file, files of different
    columns or types, or more than `most_bytes`, and what `choose` raises.
    """
    paths = _files(path)
    suffix = _suffix(paths[0])
    read = _READERS[suffix]
    tables: list[pa.Table] = []
    left = most_bytes
    for number, one in enumerate(paths):

        def part(done: int, total: int, number: int = number) -> None:
            total = max(total, 1)
            progress(number * total + done, len(paths) * total)

        with _readable(one), bounded(left):
            table = read(one, choose, left, part)
        if tables:
            _check_same(tables[0], table, one)
        left -= max(table.nbytes, table.num_rows)
        tables.append(table)
    with bounded(most_bytes):
        whole = tables[0] if len(tables) == 1 else _joined(tables)
    if not whole.num_rows:
        raise DatasetError("the table has no rows")
    return DataTable(whole, untyped=suffix in CSV)


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise DatasetError("no such file or folder")
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DatasetError("neither a file nor a folder")  # a pipe would block
    found = sorted(one for one in path.iterdir() if not one.name.startswith((".", "_")))
    if not all(one.is_file() for one in found):
        raise DatasetError(
            "the folder holds folders: give a folder that directly holds files of one format"
        )
    if not found:
        raise DatasetError("the folder is empty")
    if len(found) > MOST_FILES:
        raise DatasetError(f"the folder holds more than {MOST_FILES:,} files: join some")
    formats = {_READERS.get(one.suffix.lower()) for one in found}
    if len(formats) > 1 or None in formats:
        raise DatasetError(
            f"the folder must hold files of a single format: {', '.join(SUFFIXES)}"
        )
    return found


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in _READERS:
        raise DatasetError(
            f"{path.suffix or 'no suffix'}: no known format; data end in {', '.join(SUFFIXES)}"
        )
    return suffix


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn Arrow's errors into a DatasetError, because their messages may quote values."""
    try:
        yield
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, OverflowError):
        raise DatasetError(
            f"{path.name}: not a readable {path.suffix.lower()} file: write it again"
        ) from None


def _parquet(path: Path, choose: Choose, most: int, progress: Progress) -> pa.Table:
    with pq.ParquetFile(path) as plain:
        schema = plain.schema_arrow
        metadata = plain.metadata
    chosen = _choose(schema.names, choose)
    texts = [name for name in chosen if kind_of(schema.field(name).type) == "text"]
    # Compare with `metadata.num_rows`: either number may be forged.
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    rows = sum(group.num_rows for group in groups)
    if rows != metadata.num_rows or rows < 0:
        raise ValueError("rows")
    # Not for single columns: Arrow aborts if their statistics are damaged.
    whole = len(chosen) == len(schema.names)
    encoded = sum(group.total_byte_size for group in groups) if whole else 0
    if max(encoded, rows * sum(_width(schema.field(name).type) for name in chosen)) > most:
        raise DatasetError(too_large(most))
    # A dictionary with one long text is small; expanded to one text per row it is not.
    options = {
        "read_dictionary": texts,
        "page_checksum_verification": True,
        "pre_buffer": False,  # or one page is read once for all that name it
    }
    with _ReadOnce(path) as source, pq.ParquetFile(source, **options) as file:
        batches = file.iter_batches(BATCH, columns=chosen, use_threads=False)
        return _collected(batches, chosen, rows, most, progress)


class _ReadOnce(FileIO):
    """A file of which little more than its bytes is read.

    The row groups of a Parquet file may all name one page. It may unpack to gigabytes each
    time, of which a row remains. Raises ValueError when too much was read.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._left = 2 * path.stat().st_size + (1 << 16)  # the end is read several times

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes."""
        found = super().read(size)
        self._left -= len(found)
        if self._left < 0:
            raise ValueError("read again")
        return found


def _arrow(path: Path, choose: Choose, most: int, progress: Progress) -> pa.Table:
    with path.open("rb") as file:
        start = file.read(len(_ARROW_MAGIC))
    with pa.OSFile(str(path)) as source:
        if start != _ARROW_MAGIC:
            names = ipc.open_stream(source).schema.names
        else:
            names = ipc.open_file(source).schema.names
    chosen = _choose(names, choose)
    options = ipc.IpcReadOptions(
        included_fields=[names.index(name) for name in chosen], use_threads=False
    )
    with pa.OSFile(str(path)) as source:
        if start != _ARROW_MAGIC:
            stream = ipc.open_stream(source, options=options)
            return _collected(iter(stream), chosen, 0, most, progress)
        reader = ipc.open_file(source, options=options)
        batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
        return _collected(batches, chosen, 0, most, progress)


def _npz(path: Path, choose: Choose, most: int, progress: Progress) -> pa.Table:
    return read_arrays(path, lambda names: _choose(names, choose), most, progress)


def _csv(path: Path, choose: Choose, most: int, progress: Progress) -> pa.Table:
    size = path.stat().st_size
    if size > most:
        raise DatasetError(too_large(most))
    if not size:
        raise DatasetError(f"{path.name}: the file is empty")
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    parse = pa_csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    read = pa_csv.ReadOptions(block_size=BLOCK, use_threads=False)
    names = _header(path, parse)
    chosen = _choose(names, choose)
    convert = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        include_columns=chosen,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
    )
    with pa.OSFile(str(path)) as source:
        reader = pa_csv.open_csv(source, read, parse, convert)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in reader:
                progress(source.tell(), size)
                yield batch

        return _collected(batches(), chosen, 0, most, lambda done, total: None)


def _header(path: Path, parse: pa_csv.ParseOptions) -> list[str]:
    """Return the names in a CSV's first row."""
    with pa.OSFile(str(path)) as source:
        read = pa_csv.ReadOptions(block_size=BLOCK, use_threads=False)
        names: list[str] = pa_csv.open_csv(source, read, parse).schema.names
    for other in ";\t|,":
        if len(names) == 1 and other != parse.delimiter and other in names[0]:
            raise DatasetError(
                "the first row has one column only: separate the columns of a .csv by commas, "
                "those of a .tsv by tabs"
            )
    return names


def _choose(names: Sequence[str], choose: Choose) -> list[str]:
    check_names(names)
    return list(dict.fromkeys(choose(tuple(names))))


def _collected(
    batches: Iterator[pa.RecordBatch],
    chosen: list[str],
    rows: int,
    most: int,
    progress: Progress,
) -> pa.Table:
    """Return all batches as one table of the chosen columns; rows 0: not known in advance."""
    found: list[pa.RecordBatch] = []
    taken = done = 0
    for batch in batches:
        # Offsets and lengths of an Arrow file are read unchecked, and may point anywhere.
        batch.validate(full=True)
        # Rows of nulls take no bytes here, but the arrays that readers make of them do.
        taken += max(batch.nbytes, batch.num_rows)
        if taken > most:
            raise DatasetError(too_large(most))
        done += batch.num_rows
        progress(done, rows or done)
        found.append(batch)
    if not found:
        raise DatasetError("the table has no rows")
    if rows and done != rows:
        raise ValueError("rows")
    return pa.Table.from_batches(found).select(chosen).unify_dictionaries()


def _width(kind: pa.DataType) -> int:
    """Return the minimum bytes of a value in memory."""
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return 4  # an offset, or a dictionary index


def _check_same(first: pa.Table, other: pa.Table, path: Path) -> None:
    """Raise for a file whose columns are not those of the first, or of other types."""
    for name in sorted({*first.column_names} ^ {*other.column_names}):
        place = "not in" if name in first.column_names else "only in"
        raise DatasetError(
            f"{name}: {place} {path.name}: write all files with the same columns"
        )
    for name in first.column_names:
        one, two = _value_type(first, name), _value_type(other, name)
        if one != two:
            raise DatasetError(
                f"{name}: {two} in {path.name}, {one} in the files before it: write them alike"
            )


def _value_type(table: pa.Table, name: str) -> pa.DataType:
    kind = table.schema.field(name).type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _joined(tables: list[pa.Table]) -> pa.Table:
    """Return the rows of all tables; a column that is a dictionary in some becomes plain."""
    schema = tables[0].schema
    for place, name in enumerate(schema.names):
        if len({table.schema.field(name).type for table in tables}) > 1:
            schema = schema.set(place, pa.field(name, _value_type(tables[0], name)))
    names = schema.names
    alike = [table.select(names).cast(pa.schema(list(schema))) for table in tables]
    return pa.concat_tables(alike).unify_dictionaries()


_READERS: dict[str, Callable[[Path, Choose, int, Progress], pa.Table]] = {
    **dict.fromkeys(PARQUET, _parquet),
    **dict.fromkeys(CSV, _csv),
    **dict.fromkeys(ARROW, _arrow),
    NPZ: _npz,
}
