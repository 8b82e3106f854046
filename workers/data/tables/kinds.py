"""The kind of a column: by its Arrow type or, in a CSV, by its values' format.

A CSV has no types. Its columns are texts until a number is needed, and every rule here checks
all values of a column: '007' is a text, and so is a column that contains it.
"""

from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

Kind = Literal["integer", "real", "boolean", "text", "time", "other"]

# At most 18 digits, which fit 64 bits, and no leading zero: ids such as 007 are not numbers.
_INTEGER = r"^-?(0|[1-9][0-9]{0,17})$"
_REAL = (
    r"^[+-]?("
    r"(0|[1-9][0-9]{0,17})"
    r"|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?"
    r"|[0-9]+[eE][+-]?[0-9]{1,4}"
    r")$"
)
_BOOLEAN = r"^(true|false|True|False|TRUE|FALSE)$"
# Only if all other values are numbers: a person may be called Null.
MISSING = ("NA", "N/A", "NaN", "nan", "null", "NULL")


def kind_of(kind: pa.DataType) -> Kind:
    """Return the kind of an Arrow type."""
    if pa.types.is_dictionary(kind):
        return kind_of(kind.value_type)
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_decimal(kind):
        # Arrow, and files of strangers, have other scales too, whose values it cannot write.
        if abs(kind.scale) > (76 if pa.types.is_decimal256(kind) else 38):
            return "other"
        return "integer" if kind.scale <= 0 else "real"
    if pa.types.is_floating(kind) or pa.types.is_null(kind):
        return "real"
    if (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
    ):
        return "text"
    if pa.types.is_temporal(kind):
        return "time"
    return "other"


def is_narrow(kind: pa.DataType) -> bool:
    """Return whether float32 holds every value of a numeric type."""
    if pa.types.is_boolean(kind) or pa.types.is_float16(kind) or pa.types.is_float32(kind):
        return True
    return bool(pa.types.is_integer(kind) and kind.bit_width <= 16)


def spelled_kind(texts: pa.ChunkedArray) -> Kind:
    """Return a CSV column's kind: the first of boolean, integer, real that all values match."""
    if texts.null_count == len(texts):
        return "real"
    if all_match(texts, _BOOLEAN):
        return "boolean"
    numbers = without_markers(texts)
    if numbers.null_count == len(numbers):
        return "text"
    if all_match(numbers, _INTEGER):
        return "integer"
    return "real" if all_match(numbers, _REAL) else "text"


def parsed(texts: pa.ChunkedArray, kind: Kind) -> pa.ChunkedArray:
    """Return a CSV column as values of its kind."""
    if kind == "boolean":
        return pc.cast(pc.utf8_lower(texts), pa.bool_())
    if kind == "integer":
        return pc.cast(without_markers(texts), pa.int64())
    if kind == "real":
        plain = pc.replace_substring_regex(without_markers(texts), r"^\+", "")
        return pc.cast(plain, pa.float64())
    return texts


def without_markers(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts with null for the markers of missing numbers."""
    marked = pc.is_in(texts, value_set=pa.array(MISSING, texts.type))
    return pc.if_else(marked, pa.scalar(None, texts.type), texts)


def all_match(texts: pa.ChunkedArray, pattern: str) -> bool:
    """Return whether all non-null texts match an RE2 pattern."""
    matched: Any = pc.all(pc.match_substring_regex(texts, pattern), min_count=0)
    return bool(matched.as_py())


def first_text(texts: pa.ChunkedArray) -> int | None:
    """Return the row, from 0, of the first text that is not a number, if any."""
    found = pc.match_substring_regex(without_markers(texts), _REAL)
    row = int(pc.index(found, pa.scalar(False)).as_py())
    return None if row < 0 else row
