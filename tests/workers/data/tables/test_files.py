"""Files and folders of tables: good ones read alike, bad ones are one problem each."""

import datetime
import os
import pickle
import resource
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as feather
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lethe.ids import is_id
from tests.fuzz import fuzz
from workers.data.tables.files import read_table
from workers.data.tables.table import DataTable
from workers.errors import DatasetError


class Counted(str):
    """A name that counts comparisons."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


TABLE = pa.table({"id": ["007", "8", "x,y"], "x": [0.1, -2.5, 1e300], "n": [1, 2, 3]})


def write_stream(table: pa.Table, path: Path) -> None:
    with ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)


WRITERS: dict[str, Callable[[pa.Table, Path], Any]] = {
    ".parquet": lambda table, path: pq.write_table(table, path),
    ".pq": lambda table, path: pq.write_table(table, path, row_group_size=1),
    ".feather": lambda table, path: feather.write_feather(table, str(path)),
    ".arrow": lambda table, path: feather.write_feather(table, str(path), chunksize=1),
    ".ipc": write_stream,
    ".csv": lambda table, path: pa_csv.write_csv(table, path),
    ".tsv": lambda table, path: pa_csv.write_csv(
        table, path, pa_csv.WriteOptions(delimiter="\t")
    ),
    ".npz": lambda table, path: np.savez(path, allow_pickle=False, **arrays(table)),
}


def arrays(table: pa.Table) -> dict[str, Any]:
    """Return the columns of a table as numpy's arrays, written by no code of Lethe."""
    return {name: np.array(table.column(name).to_pylist()) for name in table.column_names}


def contents(table: DataTable) -> dict[str, list[Any]]:
    return {name: found(table, name) for name in table.names}


def found(table: DataTable, name: str) -> list[Any]:
    values: list[Any] = (
        table.ids(name) if table.column(name).kind == "text" else table.numbers(name)
    ).tolist()
    return values


@pytest.mark.parametrize("suffix", WRITERS)
def test_all_formats_read_alike(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows{suffix}"
    WRITERS[suffix](TABLE, path)
    table = read_table(path)
    assert contents(table) == TABLE.to_pydict()
    assert [column.kind for column in table.columns] == ["text", "real", "integer"]


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_folder_is_read_in_the_order_of_its_names(suffix: str, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    for number in (2, 0, 1):
        WRITERS[suffix](TABLE.slice(number, 1), folder / f"part-{number}{suffix}")
    (folder / "_SUCCESS").touch()
    (folder / ".crc").touch()
    seen: list[tuple[int, int]] = []
    table = read_table(folder, progress=lambda done, total: seen.append((done, total)))
    assert contents(table) == TABLE.to_pydict()
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]


def test_only_the_chosen_columns_are_read(tmp_path: Path) -> None:
    for suffix, write in WRITERS.items():
        path = tmp_path / f"rows{suffix}"
        write(TABLE, path)
        table = read_table(path, lambda names: [name for name in ("n", "id") if name in names])
        assert table.names == ("n", "id")
        assert contents(table) == TABLE.select(["n", "id"]).to_pydict()


def test_a_choice_may_refuse_before_anything_is_read(tmp_path: Path) -> None:
    def refuse(names: Any) -> list[str]:
        raise DatasetError(f"out of {len(names)}")

    for suffix, write in WRITERS.items():
        path = tmp_path / f"rows{suffix}"
        write(TABLE, path)
        with pytest.raises(DatasetError, match="out of 3"):
            read_table(path, refuse)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"x": [1]}, "x: int64 in b.parquet, double in the files before it"),
        ({"x": None}, "x: not in b.parquet"),
        ({"y": [1.5]}, "y: only in b.parquet"),
        ({"d": [datetime.date(2024, 1, 1)]}, "d: date32.* in b.parquet, string"),
    ],
)
def test_the_files_of_a_folder_have_the_same_columns(
    others: dict[str, Any], message: str, tmp_path: Path
) -> None:
    first = {"x": [0.5], "d": ["a"]}
    second = {name: list_ for name, list_ in {**first, **others}.items() if list_ is not None}
    pq.write_table(pa.table(first), tmp_path / "a.parquet")
    pq.write_table(pa.table(second), tmp_path / "b.parquet")
    with pytest.raises(DatasetError, match=message):
        read_table(tmp_path)


def test_a_dictionary_in_one_file_is_text_in_the_next(tmp_path: Path) -> None:
    plain = pa.table({"k": ["a", "b"], "n": [1, 2]})
    encoded = plain.set_column(0, "k", plain["k"].dictionary_encode())
    feather.write_feather(encoded, str(tmp_path / "0.feather"))
    feather.write_feather(plain, str(tmp_path / "1.feather"))
    other = pa.table({"k": pa.array(["c"]).dictionary_encode(), "n": [3]})
    feather.write_feather(other, str(tmp_path / "2.feather"))
    table = read_table(tmp_path)
    assert table.ids("k").tolist() == ["a", "b", "a", "b", "c"]
    assert table.classes("k")[0].tolist() == [0, 1, 0, 1, 2]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "the folder is empty"),
        (["a.parquet", "b.csv"], "files of a single format"),
        (["a.parquet", "notes.txt"], "files of a single format"),
        (["year=2024/a.parquet"], "the folder holds folders"),
    ],
)
def test_other_folders_are_refused(names: list[str], message: str, tmp_path: Path) -> None:
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        pq.write_table(TABLE, path)
    with pytest.raises(DatasetError, match=message):
        read_table(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": np.zeros(2)}, "x: 2 rows, id has 3"),
        ({"x": np.array([1, None, "a"], dtype=object)}, "x: pickled objects"),
        ({"x": np.zeros((3, 2, 2))}, "x: no column, which has a number"),
        ({"x": np.float64(1)}, "x: no column"),
        ({"x": np.zeros(3, complex)}, "x: no column"),
        ({"x": np.zeros(3, np.longdouble)}, "x: no column"),
        ({"x": np.zeros(3, [("a", "f8")])}, "x: no column"),
        ({"x": np.zeros((3, 1 << 17), np.uint8)}, "x: a matrix of more than 65,536 columns"),
        ({"x_0": np.zeros(3), "x": np.zeros((3, 2))}, "x_0: two columns have this name"),
        ({"id": np.zeros(0), "x": np.zeros(0), "n": np.zeros(0)}, "the table has no rows"),
        ({"extractor": np.array("{}")}, "the features come from an extractor"),
    ],
)
def test_odd_arrays_are_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, **{**arrays(TABLE), **changes})
    with pytest.raises(DatasetError, match=message):
        read_table(path)


class Planted:
    """Runs as it is unpickled, and leaves a file."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.trace,)


def test_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    trace, path = tmp_path / "trace", tmp_path / "rows.npz"
    planted = Planted(trace)
    path.write_bytes(pickle.dumps(planted))
    with pytest.raises(DatasetError, match=r"not a readable \.npz file"):
        read_table(path)
    np.savez(path, x=np.array([planted], dtype=object))
    with pytest.raises(DatasetError, match="x: pickled objects"):
        read_table(path)
    assert not trace.exists()


def test_one_array_is_no_table_and_what_is_not_chosen_is_not_unpacked(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    with pytest.raises(DatasetError, match=r"save it with numpy\.savez"):
        read_table(tmp_path / "one.npz")
    path = tmp_path / "rows.npz"
    objects = np.array([{}], dtype=object)
    np.savez(path, x=np.array([1.5, np.nan]), t=np.array(["", "a"]), objects=objects)
    table = read_table(path, lambda names: [name for name in names if name != "objects"])
    assert [column.nulls for column in table.columns] == [1, 1]
    assert table.categories("t") == ("a",)


@pytest.mark.parametrize("suffix", [*WRITERS, ".xlsx", ""])
@pytest.mark.parametrize("content", [b"", b"PAR1", b"ARROW1", b"\x80\x04N.", b"\xff" * 64])
def test_other_files_are_refused(suffix: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"rows{suffix}"
    path.write_bytes(content)
    with pytest.raises(DatasetError):
        read_table(path)
    with pytest.raises(DatasetError, match="no such file"):
        read_table(tmp_path / f"nowhere{suffix}")


def test_the_names_of_wide_tables_are_not_compared_with_each_other(tmp_path: Path) -> None:
    Counted.compared = 0
    path = tmp_path / "wide.npz"
    np.savez(path, x=np.zeros((1, 300)))
    table = read_table(path, lambda names: [Counted(name) for name in names])
    assert len(table.names) == 300
    assert Counted.compared < 10 * 300
    assert table.names is table.names


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.csv")
    with pytest.raises(DatasetError, match="neither a file nor a folder"):
        read_table(tmp_path / "rows.csv")
    with pytest.raises(DatasetError, match="the folder holds folders"):
        read_table(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "rows.csv: the file is empty"),
        (b"a,b\n", "the table has no rows"),
        (b"a,b\n1\n", "rows.csv: not a readable .csv file"),
        (b"a,b\n1,2,secret\n", "rows.csv: not a readable .csv file"),
        (b"a,b\n\xff\xfe,1\n", "rows.csv: not a readable .csv file"),
        (b"a;b\n1;2\n", "separate the columns of a .csv by commas"),
        (b"a,a\n1,2\n", "a: two columns"),
        (b"a,\n1,2\n", "a column has no name"),
    ],
)
def test_odd_csv_files_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=message) as error:
        read_table(path)
    assert "secret" not in str(error.value)


def test_a_csv_may_quote_and_start_with_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes('\ufeff"a","b c"\r\n"x ""y"" \u00fc",\r\n"","2"\r\n'.encode())
    table = read_table(path)
    assert table.names == ("a", "b c")
    assert [column.nulls for column in table.columns] == [1, 1]
    assert table.holes("a").tolist() == [False, True]
    assert table.take(~table.holes("a")).ids("a").tolist() == ['x "y" \u00fc']


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_table_above_the_bound_is_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows{suffix}"
    WRITERS[suffix](pa.table({"x": np.arange(4096.0) / 3}), path)
    assert len(read_table(path, most_bytes=1 << 20)) == 4096
    with pytest.raises(DatasetError, match=r"needs more than .* GiB in memory"):
        read_table(path, most_bytes=1 << 14)


def test_zeros_that_unpack_to_gigabytes_are_refused_by_their_metadata(tmp_path: Path) -> None:
    path = tmp_path / "zeros.parquet"
    with pq.ParquetWriter(path, pa.schema([("x", pa.float64())])) as writer:
        for _ in range(8):
            writer.write_table(pa.table({"x": np.zeros(1 << 17)}))
    assert path.stat().st_size < 1 << 15
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DatasetError, match="needs more than"):
        read_table(path, most_bytes=1 << 22)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4 << 10  # KiB


@pytest.mark.parametrize("kind", [pa.null(), pa.struct([])], ids=str)
def test_rows_without_bytes_count(kind: pa.DataType, tmp_path: Path) -> None:
    """A file of 400 bytes may have 2**40 rows, and a reader makes an array of them."""
    rows = pa.record_batch({"k": pa.Array.from_buffers(kind, 1 << 21, [None])})
    path = tmp_path / "rows.arrow"
    with ipc.new_file(str(path), rows.schema) as writer:
        writer.write_batch(rows)
    assert path.stat().st_size < 1000
    with pytest.raises(DatasetError, match="needs more than"):
        read_table(path, most_bytes=1 << 20)


def test_a_long_text_for_each_row_stays_in_its_dictionary(tmp_path: Path) -> None:
    rows = 100_000
    numbers = pa.array(np.zeros(rows, np.int32))
    long = pa.DictionaryArray.from_arrays(numbers, pa.array(["x" * 1_000_000]))
    path = tmp_path / "long.parquet"
    pq.write_table(pa.table({"k": long}), path, compression="zstd")
    table = read_table(path, most_bytes=1 << 24)  # a hundred gigabytes if expanded
    for ask in (table.ids, table.classes, table.categories):
        with pytest.raises(DatasetError, match="k: a value is longer"):
            ask("k")


def test_holes_and_categories_expand_no_dictionary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wrote the file may have put one text of megabytes into millions of rows."""
    path = tmp_path / "rows.parquet"
    texts = pa.array(["b", None, "a", "b"]).dictionary_encode()
    pq.write_table(pa.table({"k": texts}), path)
    table = read_table(path)

    def expanded(values: pa.ChunkedArray) -> pa.ChunkedArray:
        assert not pa.types.is_dictionary(values.type), "expanded"
        return values

    monkeypatch.setattr("workers.data.tables.table.plain_values", expanded)
    assert table.holes("k").tolist() == [False, True, False, False]
    known = {"k": ["a", "b"]}
    found = table.matrix(["k"], allow_missing=True, categories=known)
    np.testing.assert_array_equal(found[:, 0], [1, np.nan, 0, 1])
    with pytest.raises(DatasetError, match="k: 1 of 4 values are not among"):
        table.matrix(["k"], allow_missing=True, categories={"k": ["b"]})


def test_a_dictionary_may_itself_miss_values() -> None:
    indices = pa.array([0, 1, None, 2], pa.int8())
    texts = pa.DictionaryArray.from_arrays(indices, pa.array(["a", None, "b"]))
    numbers = pa.DictionaryArray.from_arrays(indices, pa.array([1.0, np.nan, 2.0]))
    table = DataTable(pa.table({"k": texts, "x": numbers}))
    for name in ("k", "x"):
        assert table.holes(name).tolist() == [False, True, True, False]
    found = table.matrix(["k"], allow_missing=True, categories={"k": ["a", "b"]})
    np.testing.assert_array_equal(found[:, 0], [0, np.nan, np.nan, 1])


def test_a_dictionary_is_text_to_a_person(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    table = read_table(tmp_path / "rows.parquet")
    assert table.column("id").type == "string"
    with pytest.raises(DatasetError, match=r"id: text \(string\), not a number"):
        table.matrix(["id"])


def test_metadata_that_lies_about_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lie.parquet"
    rows = 0x1234567
    pq.write_table(pa.table({"x": np.zeros(3)}), path)
    honest = path.read_bytes()
    size = struct.unpack("<I", honest[-8:-4])[0]
    footer = honest[-8 - size : -8]
    # num_rows is a thrift zigzag varint: 3 is 0x06. It stands behind the schema, and again in
    # the row group and its column chunk.
    for place in [at for at in range(len(footer)) if footer[at] == 0x06]:
        lie = footer[:place] + varint(rows * 2) + footer[place + 1 :]
        path.write_bytes(honest[: -8 - size] + lie + struct.pack("<I", len(lie)) + b"PAR1")
        try:
            table = read_table(path, most_bytes=1 << 20)
        except DatasetError:
            continue
        assert table.numbers("x").tolist() == [0, 0, 0]


def one_page_in_groups(groups: int, size: int) -> bytes:
    """Return a Parquet file (Thrift, compact) whose row groups all name one page of int64."""

    def number(field: int, value: int) -> bytes:  # the step from the field before, and an i64
        return bytes([field << 4 | 6]) + varint(value * 2)

    def small(field: int, value: int) -> bytes:
        return bytes([field << 4 | 5]) + varint(value * 2)

    def name(field: int) -> bytes:
        return bytes([field << 4 | 8, 1]) + b"x"

    end = b"\0"
    values = small(1, 1) + small(1, 0) + small(1, 3) + small(1, 3) + end
    page = small(1, 0) + small(1, size) + small(1, size) + b"\x2c" + values + end + bytes(size)
    column = (
        small(1, 2) + b"\x19\x15\0" + b"\x19\x18\1x" + small(1, 0) + number(1, 1)
        + number(1, len(page)) + number(1, len(page)) + number(2, 4) + end
    )  # fmt: skip
    chunk = number(2, 4) + b"\x1c" + column + end
    group = b"\x19\x1c" + chunk + number(1, 8) + number(1, 1) + end
    schema = name(4) + small(1, 1) + end + small(1, 2) + small(2, 0) + name(1) + end
    footer = small(1, 1) + b"\x19\x2c" + schema + number(1, groups)
    footer += b"\x19\xfc" + varint(groups) + group * groups + end
    return b"PAR1" + page + footer + struct.pack("<I", len(footer)) + b"PAR1"


def test_a_page_is_not_read_for_each_row_group(tmp_path: Path) -> None:
    """It may unpack to gigabytes, each time."""
    path = tmp_path / "rows.parquet"
    path.write_bytes(one_page_in_groups(16, 1 << 10))
    assert len(read_table(path)) == 16
    path.write_bytes(one_page_in_groups(64, 1 << 14))
    with pytest.raises(DatasetError, match="not a readable"):
        read_table(path)


def test_no_damaged_byte_of_a_footer_ends_the_process(tmp_path: Path) -> None:
    """Arrow aborts if a column's damaged statistics are read."""
    path = tmp_path / "rows.parquet"
    pq.write_table(TABLE.select(["id"]), path)
    honest = path.read_bytes()
    size = struct.unpack("<I", honest[-8:-4])[0]
    for place in range(len(honest) - 8 - size, len(honest)):
        damaged = bytearray(honest)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        try:
            read_table(path, most_bytes=1 << 24)
        except DatasetError:
            continue


def varint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_what_unpacks_beyond_the_bound_fails_where_it_is_allocated(tmp_path: Path) -> None:
    """A buffer of an Arrow file declares its own size, forged here."""
    path = tmp_path / "bomb.feather"
    feather.write_feather(pa.table({"x": np.zeros(1 << 16)}), str(path), compression="zstd")
    data = path.read_bytes()
    honest = struct.pack("<q", 8 << 16)
    assert data.count(honest) >= 1
    path.write_bytes(data.replace(honest, struct.pack("<q", 1 << 40)))
    limits = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(DatasetError, match=r"GiB in memory|not a readable"):
        read_table(path, most_bytes=1 << 20)
    assert resource.getrlimit(resource.RLIMIT_AS) == limits


NAMES = st.text("abcdefgh_", min_size=1, max_size=8)
VALUES = st.one_of(
    st.lists(st.integers(-(2**53), 2**53), min_size=5, max_size=5),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=5, max_size=5),
    st.lists(
        st.text(min_size=1, max_size=20).filter(is_id),
        min_size=5,
        max_size=5,
    ),
)


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=4))
def test_what_is_written_is_read(columns: dict[str, list[Any]]) -> None:
    table = pa.table(columns)
    with tempfile.TemporaryDirectory() as folder:
        for suffix, write in WRITERS.items():
            path = Path(folder) / f"rows{suffix}"
            write(table, path)
            got = read_table(path)
            assert got.names == tuple(columns)
            for name, values in columns.items():
                if isinstance(values[0], str):
                    assert got.ids(name).tolist() == values
                else:
                    assert got.numbers(name).tolist() == values


@fuzz(150, suppress_health_check=list(HealthCheck))
@given(st.sampled_from([".parquet", ".feather", ".ipc", ".csv", ".npz"]), st.data())
def test_a_damaged_file_is_a_problem_or_a_table(suffix: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"rows{suffix}"
        WRITERS[suffix](TABLE, path)
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(
                st.integers(0, 255)
            )
        path.write_bytes(content)
        try:
            table = read_table(path, most_bytes=1 << 24)
            for name in table.names:
                table.column(name)
                table.ids(name)
        except DatasetError:
            pass
