"""Values of a column in Arrow, and as the numpy arrays that readers need."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lethe.ids import RULE, is_id
from workers.data.npz import EXACT
from workers.data.tables.kinds import Kind, kind_of
from workers.errors import DatasetError

LONGEST = 200  # characters of an id or a class, the service's limit


def plain_values(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values without a dictionary, and half floats as float32, as Arrow needs."""
    if pa.types.is_dictionary(values.type):
        return pc.cast(values, values.type.value_type)
    return pc.cast(values, pa.float32()) if pa.types.is_float16(values.type) else values


def with_plain_nulls(table: pa.Table) -> pa.Table:
    """Return a table whose dictionaries have no null: an index of one is null instead.

    Arrow does not count such a null, so that a missing id would be the text "None".
    """
    for place, field in enumerate(table.schema):
        chunks = table.column(place).chunks
        if pa.types.is_dictionary(field.type) and any(c.dictionary.null_count for c in chunks):
            plain = pa.chunked_array([_plain_nulls(chunk) for chunk in chunks], field.type)
            table = table.set_column(place, field, plain)
    return table


def _plain_nulls(chunk: pa.DictionaryArray) -> pa.DictionaryArray:
    empty = pc.is_null(chunk.dictionary).take(chunk.indices)
    indices = pc.if_else(empty, pa.scalar(None, chunk.indices.type), chunk.indices)
    return pa.DictionaryArray.from_arrays(
        indices, chunk.dictionary, ordered=chunk.type.ordered, safe=False
    )


def mapped(
    values: pa.ChunkedArray, function: Callable[[pa.Array], pa.Array], kind: pa.DataType
) -> pa.ChunkedArray:
    """Return a function of each value, of type `kind`, without expanding a dictionary.

    A dictionary may have one text of megabytes for millions of rows.
    """
    if not pa.types.is_dictionary(values.type):
        return pa.chunked_array(map(function, values.chunks), kind)
    found = (function(chunk.dictionary).take(chunk.indices) for chunk in values.chunks)
    return pa.chunked_array(found, kind)


def missing(values: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return a mask (n,) of missing values and NaN."""
    plain = values if pa.types.is_dictionary(values.type) else plain_values(values)
    empty = mapped(plain, lambda some: pc.is_null(some, nan_is_null=True), pa.bool_())
    found: NDArray[np.bool_] = pc.fill_null(empty, True).to_numpy()
    return found


def are_whole(values: pa.ChunkedArray) -> bool:
    """Return whether all are whole numbers, or missing, that a float holds exactly."""
    plain = plain_values(values)
    if not pa.types.is_floating(plain.type):
        return False
    rounded = pc.equal(pc.round(plain), plain)
    small = pc.less_equal(pc.abs(plain), pa.scalar(float(EXACT), plain.type))
    return bool(pc.all(pc.and_(rounded, small), min_count=0).as_py())


def distinct_values(name: str, values: pa.ChunkedArray, most: int, what: str) -> list[Any]:
    """Return the distinct values, without missing ones; DatasetError for more than `most`."""
    unique = pc.unique(_plain_unique(name, values)).drop_null()
    if len(unique) > most:
        raise DatasetError(f"{name}: has {len(unique):,} values, more than {most:,} {what}")
    found: list[Any] = unique.to_pylist()
    return found


def _plain_unique(name: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the distinct values of a column without expanding a dictionary."""
    check_lengths(name, values)
    return plain_values(pc.unique(values))


def as_texts(name: str, values: pa.ChunkedArray) -> NDArray[np.str_]:
    """Return texts (n,) as ids. Raises DatasetError for one that is none."""
    check_lengths(name, values)
    for chunk in values.chunks:
        texts = texts_of(chunk).drop_null()
        # In ASCII, `is_id` refuses blanks at the ends besides; other texts are few.
        odd = pc.any(pc.match_substring_regex(texts, r"^ | $")).as_py()
        others = texts.filter(pc.invert(pc.string_is_ascii(texts)))
        if odd or not all(map(is_id, others.to_pylist())):
            raise DatasetError(f"{name}: a value is no id: it must have {RULE}")
    return np.array(plain_values(values).to_pylist(), dtype=np.str_)


def texts_of(chunk: pa.Array) -> pa.Array:
    """Return the distinct texts of a dictionary, or the texts themselves."""
    return chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk


def check_lengths(name: str, values: pa.ChunkedArray, most: int = LONGEST) -> None:
    """Raise for an empty or too long text, before texts are expanded to rows."""
    for chunk in values.chunks:
        texts = texts_of(chunk)
        if kind_of(texts.type) != "text" or not len(texts):
            continue
        span = pc.min_max(pc.utf8_length(texts)).as_py()
        if span["max"] is not None and span["max"] > most:
            raise DatasetError(
                f"{name}: a value is longer than {most:,} characters: shorten it"
            )
        if most > LONGEST:
            continue  # identities: their kind checks the rest
        if span["max"] is not None and span["min"] < 1:
            raise DatasetError(f"{name}: a value is empty: fill it in, or leave these rows out")
        if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f\x7f]")).as_py():
            raise DatasetError(
                f"{name}: a value has a control character, such as a tab or a new line: "
                "remove it"
            )


def check_exact(name: str, values: pa.ChunkedArray) -> None:
    """Raise DatasetError for an integer that a float cannot hold."""
    span = pc.min_max(plain_values(values)).as_py()
    if span["max"] is not None and max(-span["min"], span["max"]) > EXACT:
        raise DatasetError(
            f"{name}: holds an integer above 2**53, which a float cannot hold exactly: write "
            "smaller numbers, or leave it out of --features if it is an id"
        )


def as_floats(values: pa.ChunkedArray) -> NDArray[np.floating[Any]]:
    """Return numbers (n,) as floats that hold them, NaN for missing ones."""
    plain = plain_values(values)
    if pa.types.is_decimal(plain.type):
        # Arrow's own conversion rounds twice; parsing a text gives the nearest double.
        plain = pc.cast(pc.cast(plain, pa.string()), pa.float64())
    elif not pa.types.is_floating(plain.type):
        plain = pc.cast(plain, pa.float64())
    found: NDArray[np.floating[Any]] = plain.to_numpy()
    return found


def type_name(kind: pa.DataType) -> str:
    """Return an Arrow type for a person, without the dictionary encoding."""
    return str(kind.value_type if pa.types.is_dictionary(kind) else kind)


def kind_words(kind: Kind) -> str:
    """Return the words for a kind in messages."""
    return {
        "integer": "integers",
        "real": "numbers with fractions",
        "boolean": "booleans",
        "text": "text",
        "time": "a date or time",
        "other": "nested, binary, or decimals that Arrow cannot write",
    }[kind]


def missing_words(nulls: int, rows: int) -> str:
    """Return the words for missing values in messages."""
    return f"{nulls:,} of {rows:,} values are missing"
