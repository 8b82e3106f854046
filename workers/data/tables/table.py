"""A table in memory: columns by name, each read as the type a reader needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lethe.identity import MAX_LENGTH, WIDTH, IdentityError, digests, pack
from workers.arrays import Labels
from workers.data.tables.kinds import Kind, first_text, is_narrow, kind_of, parsed, spelled_kind
from workers.data.tables.names import check_names, unknown_column
from workers.data.tables.values import (
    are_whole,
    as_floats,
    as_texts,
    check_exact,
    check_lengths,
    distinct_values,
    kind_words,
    mapped,
    missing,
    missing_words,
    plain_values,
    texts_of,
    type_name,
    with_plain_nulls,
)
from workers.errors import DatasetError

MOST_CLASSES = 10_000
MOST_CATEGORIES = 1 << 16
MOST_STRINGS = 4 << 30  # bytes of texts, each padded to the longest

_AS_ID = "ids are integers or texts: write the column as one of them"
_AS_NUMBER = {
    "text": "write it as numbers, name its categories where the family takes them, or leave "
    "it out of --features",
    "time": "write it as a number, such as days since a date, or leave it out of --features",
    "other": "write each number as a column of its own, or leave it out of --features",
}


@dataclass(frozen=True, slots=True)
class Column:
    """Facts about a column. nulls: missing values, and NaN among numbers.

    type: the file's name for it; "csv" for a column without a type.
    """

    name: str
    kind: Kind
    nulls: int
    type: str


class DataTable:
    """Columns of equal length. Raises DatasetError naming a column, but never a value.

    untyped: all columns are texts of a CSV, whose format determines their kinds.
    """

    def __init__(self, arrow: pa.Table, *, untyped: bool = False) -> None:
        check_names(arrow.column_names)
        arrow = with_plain_nulls(arrow)
        self._arrow = arrow
        self._names = tuple(arrow.column_names)  # Arrow makes the list anew each time
        self._places = {name: place for place, name in enumerate(self._names)}
        self._untyped = untyped
        self._known: dict[str, Column] = {}

    def __len__(self) -> int:
        return int(self._arrow.num_rows)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in the order of the file."""
        return self._names

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns; for a CSV this reads each of them to find its kind."""
        return tuple(self.column(name) for name in self.names)

    def column(self, name: str) -> Column:
        """Return the facts about a column. Raises DatasetError for an unknown name."""
        if name not in self._known:
            values, kind = self._values(name)
            nulls = values.null_count
            if pa.types.is_floating(values.type):
                nulls += int(pc.sum(pc.is_nan(plain_values(values))).as_py() or 0)
            found = "csv" if self._untyped else type_name(self._arrow.column(name).type)
            self._known[name] = Column(name, kind, nulls, found)
        return self._known[name]

    def take(self, rows: NDArray[np.bool_]) -> "DataTable":
        """Return the rows that a mask (n,) keeps, in their order."""
        if rows.all():
            return self
        return DataTable(self._arrow.filter(pa.array(rows)), untyped=self._untyped)

    def ids(self, name: str) -> NDArray[np.str_]:
        """Return a column (n,) as ids: texts as they are, integers in decimal.

        Raises DatasetError for anything else, a missing value, or an id that is empty or
        longer than 200 characters.
        """
        values = self._raw(name)
        kind = kind_of(values.type)
        if kind not in ("integer", "text"):
            raise DatasetError(
                f"{name}: {kind_words(kind)} ({type_name(values.type)}); {_AS_ID}"
            )
        if values.null_count:
            raise DatasetError(
                f"{name}: {missing_words(values.null_count, len(self))}, as an id"
            )
        if kind == "integer":
            return np.array([str(int(value)) for value in values.to_pylist()], dtype=np.str_)
        return as_texts(name, values)

    def strings(self, name: str) -> NDArray[np.str_]:
        """Return a column (n,) of texts of any length, such as an extractor reads.

        Raises DatasetError if it holds anything else, misses a value, or needs more than
        MOST_STRINGS bytes: each text is padded to the longest.
        """
        values = self._raw(name)
        if kind_of(values.type) != "text":
            found = kind_words(kind_of(values.type))
            raise DatasetError(f"{name}: {found} ({type_name(values.type)}), not text")
        if values.null_count:
            raise DatasetError(f"{name}: {missing_words(values.null_count, len(self))}")
        longest = max(
            pc.max(pc.utf8_length(texts_of(chunk))).as_py() or 0 for chunk in values.chunks
        )
        if longest * 4 * len(self) > MOST_STRINGS:
            raise DatasetError(
                f"{name}: {len(self):,} texts of up to {longest:,} characters need more than "
                f"{MOST_STRINGS / 2**30:.3g} GiB: shorten them, or extract them in parts"
            )
        return np.array(plain_values(values).to_pylist(), dtype=np.str_)

    def digests(self, name: str, kind: str) -> NDArray[np.uint8]:
        """Return a column of identities (n, WIDTH) as `lethe.identity.pack` writes them.

        Integers are taken in decimal. A missing or blank value is no identity: zeros. Raises
        DatasetError if it holds anything but texts and integers, or an invalid value of its
        kind.
        """
        values = self._raw(name)
        found = kind_of(values.type)
        if found not in ("integer", "text"):
            raise DatasetError(
                f"{name}: {kind_words(found)} ({type_name(values.type)}); {_AS_ID}"
            )
        if found == "integer":
            values = pc.cast(plain_values(values), pa.string())
        check_lengths(name, values, MAX_LENGTH)
        encoded = plain_values(values).combine_chunks().dictionary_encode()
        packed = np.zeros((len(encoded.dictionary) + 1, WIDTH), dtype=np.uint8)
        for place, value in enumerate(encoded.dictionary.to_pylist()):
            if value.strip():
                try:
                    packed[place] = np.frombuffer(pack(digests(kind, value)), np.uint8)
                except IdentityError as error:
                    row = pc.index(encoded.indices, pa.scalar(place, pa.int32())).as_py()
                    raise DatasetError(f"{name}: row {row + 1:,}: {error.detail}") from None
        places = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy()
        rows: NDArray[np.uint8] = packed[places]
        return rows

    def holes(self, name: str) -> NDArray[np.bool_]:
        """Return a mask (n,) of a column's missing values."""
        values, _ = self._values(name)
        return missing(values)

    def classes(self, name: str, *, fewest: int = 2) -> tuple[Labels, tuple[str, ...]]:
        """Return a column (n,) as class numbers, and the class names, in order.

        Texts are classes in the order of their code points, integers by size; false is before
        true. Raises DatasetError if it holds fractions, times or nested values, misses a
        value, or has fewer than `fewest` or more than 10,000 values.
        """
        values, kind = self._values(name)
        if kind == "real" and are_whole(values):
            # pandas writes integers this way if some are missing.
            values, kind = pc.cast(plain_values(values), pa.int64()), "integer"
        if kind not in ("boolean", "integer", "text"):
            what = "numbers with fractions" if kind == "real" else f"{kind_words(kind)} values"
            raise DatasetError(
                f"{name}: holds {what}: the classes of a label are texts, integers or booleans"
            )
        if values.null_count:
            raise DatasetError(f"{name}: {missing_words(values.null_count, len(self))}")
        distinct = distinct_values(name, values, MOST_CLASSES, "classes: is it an id?")
        if len(distinct) < fewest:
            raise DatasetError(f"{name}: has one value only: a label needs two or more")
        ordered = sorted(distinct)
        numbers = pc.index_in(
            plain_values(values), value_set=pa.array(ordered, plain_values(values).type)
        )
        spelled = [str(one).lower() if kind == "boolean" else str(one) for one in ordered]
        return numbers.to_numpy().astype(np.int64), tuple(spelled)

    def flags(self, name: str) -> NDArray[np.bool_]:
        """Return a column (n,) of booleans, or of 0 and 1, such as the held-out rows.

        Raises DatasetError if it holds anything else, or misses a value.
        """
        values, kind = self._values(name)
        if values.null_count:
            raise DatasetError(f"{name}: {missing_words(values.null_count, len(self))}")
        if kind == "integer" and set(pc.unique(plain_values(values)).to_pylist()) <= {0, 1}:
            values, kind = pc.cast(plain_values(values), pa.bool_()), "boolean"
        if kind != "boolean":
            raise DatasetError(f"{name}: must hold true and false, or 0 and 1")
        found: NDArray[np.bool_] = plain_values(values).to_numpy()
        return found

    def numbers(self, name: str, *, allow_missing: bool = False) -> NDArray[np.float64]:
        """Return a column (n,) of numbers, NaN for missing ones, such as a target or a weight.

        Raises DatasetError as `matrix`.
        """
        return self.matrix([name], allow_missing=allow_missing)[:, 0].astype(np.float64)

    def categories(self, name: str) -> tuple[str, ...]:
        """Return the distinct texts of a column, sorted, without missing ones.

        Raises DatasetError if it holds no texts, or more than 65,536 of them.
        """
        values = self._raw(name)
        if kind_of(values.type) != "text":
            found = kind_words(kind_of(values.type))
            raise DatasetError(f"{name}: {found}: categories are texts")
        return tuple(sorted(distinct_values(name, values, MOST_CATEGORIES, "categories")))

    def matrix(
        self,
        names: Sequence[str],
        *,
        allow_missing: bool = False,
        categories: Mapping[str, Sequence[str]] | None = None,
    ) -> NDArray[np.floating[Any]]:
        """Return columns (n, p) as numbers: booleans 0 and 1, categories their numbers.

        float32 if every column fits it (booleans, half floats, integers of 16 bits,
        categories), otherwise float64.

        categories: by text column, its values in the order of their numbers.

        Raises:
            DatasetError: A column holds texts without categories, or others than these, times
                or nested values, an infinity, an integer above 2**53, or, unless allowed,
                misses a value; or there is no column.
        """
        known = categories or {}
        if not names:
            raise DatasetError("features: no column is left: name them with --features")
        for name in names:
            self._check_feature(name, allow_missing, known)
        narrow = all(name in known or is_narrow(self._values(name)[0].type) for name in names)
        found: NDArray[np.floating[Any]] = np.empty(
            (len(self), len(names)), np.float32 if narrow else np.float64
        )
        for place, name in enumerate(names):
            if name in known:
                found[:, place] = self._numbered(name, known[name])
            else:
                found[:, place] = as_floats(self._values(name)[0])
            if np.isinf(found[:, place]).any():
                raise DatasetError(f"{name}: holds an infinity: repair the column")
        return found

    def holds_lists(self, name: str) -> bool:
        """Return whether a column's values are lists, such as embeddings."""
        kind = self._raw(name).type
        return bool(
            pa.types.is_list(kind)
            or pa.types.is_large_list(kind)
            or pa.types.is_fixed_size_list(kind)
        )

    def lists(self, name: str) -> NDArray[np.float32]:
        """Return a column of lists of equal length as float32 (n, p).

        Raises DatasetError if a list is missing or has another length, or a value is missing,
        not a float, NaN, infinite or beyond float32.
        """
        values = self._raw(name)
        if not pa.types.is_floating(values.type.value_type):
            raise DatasetError(f"{name}: lists of {values.type.value_type}: vectors are floats")
        if values.null_count:
            raise DatasetError(f"{name}: {missing_words(values.null_count, len(self))}")
        lengths = sorted(pc.unique(pc.list_value_length(values)).to_pylist())
        if len(lengths) != 1 or lengths[0] == 0:
            some = ", ".join(map(str, lengths[:4]))
            raise DatasetError(f"{name}: lists of different lengths or empty ones ({some})")
        flat = pc.list_flatten(values)
        with np.errstate(over="ignore"):
            found = as_floats(flat).astype(np.float32).reshape(-1, lengths[0])
        wrong = int((~np.isfinite(found)).any(axis=1).sum())
        if flat.null_count or wrong:
            raise DatasetError(
                f"{name}: {max(wrong, 1):,} of {len(self):,} vectors miss a number or hold a "
                "NaN, an infinity or a number beyond float32: leave these rows out"
            )
        return found

    def _check_feature(
        self, name: str, allow_missing: bool, known: Mapping[str, Sequence[str]]
    ) -> None:
        column = self.column(name)
        if name in known:
            if kind_of(self._raw(name).type) != "text":
                raise DatasetError(f"{name}: {kind_words(column.kind)}: categories are texts")
        elif column.kind in _AS_NUMBER:
            raise DatasetError(
                f"{name}: {kind_words(column.kind)}{self._where(name, column)}, not a number: "
                f"{_AS_NUMBER[column.kind]}"
            )
        if column.nulls and not allow_missing:
            raise DatasetError(
                f"{name}: {missing_words(column.nulls, len(self))}: fill the column, leave it "
                "out of --features, or leave these rows out"
            )
        if column.kind == "integer" and name not in known:
            check_exact(name, self._values(name)[0])

    def _where(self, name: str, column: Column) -> str:
        if not self._untyped:
            return f" ({column.type})"
        row = first_text(self._raw(name))
        return "" if row is None else f" (as in row {row + 1:,} after the header)"

    def _numbered(self, name: str, known: Sequence[str]) -> NDArray[np.floating[Any]]:
        values = self._raw(name)
        places = mapped(
            values,
            lambda texts: pc.index_in(texts, value_set=pa.array(list(known), texts.type)),
            pa.int32(),
        )
        unknown = places.null_count - int(missing(values).sum())
        if unknown:
            raise DatasetError(
                f"{name}: {unknown:,} of {len(self):,} values are not among its categories: "
                "declare them, or leave these rows out"
            )
        return as_floats(places)

    def _values(self, name: str) -> tuple[pa.ChunkedArray, Kind]:
        """Return a column with its type, and the kind."""
        values = self._raw(name)
        if not self._untyped:
            return values, kind_of(values.type)
        known = self._known.get(name)
        kind = spelled_kind(values) if known is None else known.kind
        return parsed(values, kind), kind

    def _raw(self, name: str) -> pa.ChunkedArray:
        if name not in self._places:
            raise DatasetError(unknown_column(name, self.names))
        return self._arrow.column(self._places[name])
