"""The arrays of an .npz as columns of a table, for options that name columns.

An array (n,) is a column of its name, a matrix (n, p) the columns NAME_0, NAME_1, …. Only
requested arrays are unpacked, and pickled objects are refused.
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy
from numpy.typing import NDArray

from workers.arrays import MAX_HEADER, UNREADABLE, load_numpy
from workers.data.tables.memory import too_large
from workers.errors import DatasetError

MOST_WIDTH = 1 << 16  # columns of a matrix
SHORT = (1, 0)  # the usual header version
EXTRACTED = "extractor"  # the array that `lethe features` adds to its rows

_Header = tuple[tuple[int, ...], "np.dtype[Any]"]


def read_arrays(
    path: Path,
    choose: Callable[[Sequence[str]], list[str]],
    most: int,
    progress: Callable[[int, int], None],
) -> pa.Table:
    """Return the chosen columns of an .npz. An empty text is a missing value, as in a CSV.

    Raises:
        DatasetError: An array is no column, or of another length than the others; the file is
            of `lethe features`, whose extractor a table would lose; or more than `most` bytes.
        ValueError: The file is damaged, or no .npz.
    """
    try:
        with path.open("rb") as file:
            archive = load_numpy(file)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DatasetError("the file is one array: save it with numpy.savez")
            return _read(archive, choose, most, progress)
    except MemoryError:
        raise
    except (*UNREADABLE, SystemError):  # the last is raised by numpy for odd array types
        raise ValueError("npz") from None


def _read(
    archive: "np.lib.npyio.NpzFile[Any]",
    choose: Callable[[Sequence[str]], list[str]],
    most: int,
    progress: Callable[[int, int], None],
) -> pa.Table:
    if EXTRACTED in archive.files:
        raise DatasetError(
            "the features come from an extractor, which a table would not name: omit the "
            "options that name columns"
        )
    headers = {name: _header(archive, name) for name in archive.files}
    places = [place for name, header in headers.items() for place in _places(name, header)]
    chosen = choose([column for column, _, _ in places])
    named = set(chosen)
    wanted = {column: (name, place) for column, name, place in places if column in named}
    names = list(dict.fromkeys(wanted[column][0] for column in chosen))
    for name in names:
        _check(name, headers[name], names[0], headers[names[0]])
    sizes = (prod(headers[name][0]) * headers[name][1].itemsize for name in names)
    if sum(sizes) > most:
        raise DatasetError(too_large(most))
    columns: dict[str, pa.Array] = {}
    for number, name in enumerate(names):
        array = archive[name]
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        for column, (own, place) in wanted.items():
            if own == name:
                columns[column] = _column(array if place is None else array[:, place])
        progress(number + 1, len(names))
    return pa.table({column: columns[column] for column in chosen})


def _header(archive: "np.lib.npyio.NpzFile[Any]", name: str) -> _Header:
    """Return the shape and the type in an array's header."""
    assert archive.zip is not None
    with archive.zip.open(f"{name}.npy") as file:
        short = npy.read_magic(file) == SHORT
        read = npy.read_array_header_1_0 if short else npy.read_array_header_2_0
        shape, _, dtype = read(file, max_header_size=MAX_HEADER)
    return shape, dtype


def _places(name: str, header: _Header) -> Iterator[tuple[str, str, int | None]]:
    """Yield each column of an array: its name, the array's, and its position in a matrix."""
    shape, _ = header
    if len(shape) != 2:
        yield name, name, None
        return
    if shape[1] > MOST_WIDTH:
        raise DatasetError(f"{name}: a matrix of more than {MOST_WIDTH:,} columns")
    yield from ((f"{name}_{place}", name, place) for place in range(shape[1]))


def _check(name: str, header: _Header, first: str, other: _Header) -> None:
    """Raise DatasetError unless an array has columns, of the first array's length."""
    shape, dtype = header
    if dtype.hasobject:
        raise DatasetError(
            f"{name}: pickled objects, which are never read: save numbers, or texts as a numpy "
            "array of strings"
        )
    wide = dtype.kind == "f" and dtype.itemsize > 8  # which Arrow lacks
    if len(shape) not in (1, 2) or dtype.kind not in "biufUM" or wide:
        raise DatasetError(
            f"{name}: no column, which has a number, a boolean, a text or a time for each row: "
            "leave it out of --features"
        )
    if shape[0] != other[0][0]:
        raise DatasetError(
            f"{name}: {shape[0]:,} rows, {first} has {other[0][0]:,}: save them alike, or "
            "leave it out of --features"
        )


def _column(values: NDArray[Any]) -> pa.Array:
    if values.dtype.kind != "U":
        return pa.array(np.ascontiguousarray(values))
    return pa.array(values, pa.string(), mask=values == "")
