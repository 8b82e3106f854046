"""The facts of a table about its columns, and the conversions it refuses."""

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.data.tables.kinds import Kind, kind_of
from workers.data.tables.table import DataTable
from workers.errors import DatasetError


def spelled(*values: str | None) -> DataTable:
    return DataTable(pa.table({"c": pa.array(values, pa.string())}), untyped=True)


def typed(values: Any, kind: pa.DataType | None = None) -> DataTable:
    return DataTable(pa.table({"c": pa.array(values, kind)}))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2", "0"], "integer"),
        (["1", "", "NA"], "text"),  # an empty text is no missing one, as files are read
        (["1", None, "NA", "null"], "integer"),
        (["007", "8"], "text"),
        (["-01"], "text"),
        (["00.5"], "real"),
        (["1.0", "+2", "3e5", ".5", "7."], "real"),
        (["1.0", "007"], "text"),
        (["1" * 18], "integer"),
        (["1" * 19], "text"),
        (["1" * 19, "1.5"], "text"),
        (["inf"], "text"),
        (["0x10"], "text"),
        (["1,5"], "text"),
        ([" 1"], "text"),
        (["true", "False", None], "boolean"),
        (["true", "1"], "text"),
        (["yes", "no"], "text"),
        (["NA", "null"], "text"),  # people are called Null
        ([None, None], "real"),
        (["2024-01-01"], "text"),
    ],
)
def test_the_spelling_of_all_values_says_what_a_csv_holds(
    values: list[str | None], kind: Kind
) -> None:
    assert spelled(*values).column("c").kind == kind


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.int8(), "integer"),
        (pa.uint64(), "integer"),
        (pa.float16(), "real"),
        (pa.decimal128(9, 2), "real"),
        (pa.decimal128(30, 0), "integer"),
        (pa.decimal128(5, -38), "integer"),
        (pa.decimal128(5, -39), "other"),
        (pa.decimal128(5, 39), "other"),
        (pa.decimal256(5, 76), "real"),
        (pa.decimal256(5, 77), "other"),
        (pa.null(), "real"),
        (pa.bool_(), "boolean"),
        (pa.large_string(), "text"),
        (pa.string_view(), "text"),
        (pa.dictionary(pa.int8(), pa.string()), "text"),
        (pa.dictionary(pa.int8(), pa.int64()), "integer"),
        (pa.timestamp("us", "UTC"), "time"),
        (pa.date32(), "time"),
        (pa.duration("s"), "time"),
        (pa.list_(pa.float32()), "other"),
        (pa.struct([("a", pa.int8())]), "other"),
        (pa.binary(), "other"),
    ],
)
def test_the_kinds_of_arrow_types(kind: pa.DataType, expected: Kind) -> None:
    assert kind_of(kind) == expected


def test_ids_keep_their_spelling() -> None:
    assert spelled("007", "8", "NA").ids("c").tolist() == ["007", "8", "NA"]
    assert spelled("7", "1.50").ids("c").tolist() == ["7", "1.50"]
    assert typed([7, 2**64 - 1], pa.uint64()).ids("c").tolist() == ["7", str(2**64 - 1)]
    assert typed([Decimal(10**25)]).ids("c").tolist() == [str(10**25)]
    dictionary = pa.array(["a", "b", "a"]).dictionary_encode()
    assert DataTable(pa.table({"c": dictionary})).ids("c").tolist() == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, 2.0], "c: numbers with fractions .*write the column as one of them"),
        ([True], "c: booleans"),
        ([datetime.date(2024, 1, 1)], "c: a date or time"),
        (["a", None], "c: 1 of 2 values are missing"),
        (["a", ""], "c: a value is empty"),
        (["a", "x" * 201], "c: a value is longer than 200"),
        (["a", "x\0"], "c: a value has a control character"),
        (["a", "x "], "c: a value is no id"),
        (["a", "Jose\u0301"], "c: a value is no id: .* Unicode form NFC"),
        ([["a"]], "c: nested, binary"),
    ],
)
def test_other_columns_are_no_ids(values: Any, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        typed(values).ids("c")


@pytest.mark.parametrize(
    ("values", "numbers", "names"),
    [
        (["no", "yes", "no"], [0, 1, 0], ("no", "yes")),
        (["b", "Z", "a"], [2, 0, 1], ("Z", "a", "b")),
        ([10, 9, 10], [1, 0, 1], ("9", "10")),
        ([-1, 1], [0, 1], ("-1", "1")),
        ([True, False], [1, 0], ("false", "true")),
        ([1.0, 0.0], [1, 0], ("0", "1")),
    ],
)
def test_labels_become_classes_in_order(
    values: Any, numbers: list[int], names: tuple[str, ...]
) -> None:
    assert (typed(values).classes("c")[0].tolist(), typed(values).classes("c")[1]) == (
        numbers,
        names,
    )
    dictionary = DataTable(pa.table({"c": pa.array(values).dictionary_encode()}))
    assert dictionary.classes("c")[0].tolist() == numbers
    spelling = [str(value) for value in values]
    if "1.0" not in spelling:
        assert spelled(*spelling).classes("c")[0].tolist() == numbers


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.5, 1.0], "c: holds numbers with fractions"),
        ([datetime.datetime(2024, 1, 1)], "c: holds a date or time"),
        (["a", None], "c: 1 of 2 values are missing"),
        (["a", "a"], "c: has one value only"),
        (["a", ""], "c: a value is empty"),
        (list(range(10_001)), "c: has 10,001 values.* is it an id"),
        ([["a"]], "c: holds nested"),
    ],
)
def test_other_columns_are_no_labels(values: Any, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        typed(values).classes("c")


def test_a_matrix_is_as_wide_as_its_widest_column() -> None:
    narrow = {
        "flag": pa.array([True, False]),
        "small": pa.array([-(2**15), 3], pa.int16()),
        "half": pa.array(np.array([0.5, 1.5], np.float16)),
        "single": pa.array([0.1, 0.2], pa.float32()),
    }
    table = DataTable(pa.table({**narrow, "double": [0.1, 0.2], "wide": [2**53, -(2**53)]}))
    got = table.matrix(list(narrow))
    assert got.dtype == np.float32
    assert got.tolist() == [
        [1, -(2**15), 0.5, float(np.float32(0.1))],
        [0, 3, 1.5, float(np.float32(0.2))],
    ]
    assert table.matrix(["single", "double"]).dtype == np.float64
    assert table.matrix(["wide"]).tolist() == [[2.0**53], [-(2.0**53)]]
    assert table.matrix(["double", "flag"]).tolist() == [[0.1, 1], [0.2, 0]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a", "b"], r"c: text \(string\), not a number: .*leave it out of --features"),
        ([datetime.datetime(2024, 1, 1)], "c: a date or time .*days since a date"),
        ([[1.0, 2.0]], "c: nested, binary.*a column of its own"),
        ([2**53 + 1], "c: holds an integer above 2"),
        ([-(2**53) - 1], "c: holds an integer above 2"),
        ([Decimal(2**60)], "c: holds an integer above 2"),
        ([1.0, None, None], "c: 2 of 3 values are missing: fill the column"),
        ([1.0, float("nan")], "c: 1 of 2 values are missing"),
        ([None], "c: 1 of 1 values are missing"),
        ([1.0, float("inf")], "c: holds an infinity"),
    ],
)
def test_other_columns_are_no_features(values: Any, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        typed(values).matrix(["c"])


def test_the_row_of_a_text_among_a_csv_of_numbers_is_named() -> None:
    with pytest.raises(
        DatasetError, match=r"c: text \(as in row 3 after the header\)"
    ) as error:
        spelled("1", "2.5", "secret", "4").matrix(["c"])
    assert "secret" not in str(error.value)


def test_values_may_be_missing_where_a_family_takes_them() -> None:
    table = DataTable(
        pa.table({"n": [1, None, 3], "x": [None, np.nan, 0.5], "k": ["red", None, "blue"]})
    )
    assert table.column("x").nulls == 2
    got = table.matrix(["n", "x", "k"], allow_missing=True, categories={"k": ("blue", "red")})
    np.testing.assert_array_equal(got, [[1, np.nan, 1], [np.nan] * 3, [3, 0.5, 0]])
    assert table.categories("k") == ("blue", "red")
    with pytest.raises(DatasetError, match="k: 1 of 3 values are not among its categories"):
        table.matrix(["k"], allow_missing=True, categories={"k": ("blue",)})


def test_a_value_outside_the_categories_is_counted() -> None:
    table = DataTable(pa.table({"k": ["red", "green", "blue"]}))
    with pytest.raises(DatasetError, match="k: 2 of 3 values are not among its categories"):
        table.matrix(["k"], categories={"k": ["red"]})
    with pytest.raises(DatasetError, match="n: integers: categories are texts"):
        DataTable(pa.table({"n": [1]})).matrix(["n"], categories={"n": ["red"]})
    with pytest.raises(DatasetError, match="k: has 65,537 values"):
        DataTable(pa.table({"k": [str(n) for n in range(65_537)]})).categories("k")


def test_held_out_columns_are_booleans_or_bits() -> None:
    assert typed([True, False]).flags("c").tolist() == [True, False]
    assert typed([1, 0]).flags("c").tolist() == [True, False]
    assert spelled("0", "1").flags("c").tolist() == [False, True]
    for values in ([0, 2], ["train", "test"], [0.5]):
        with pytest.raises(DatasetError, match="c: must hold true and false, or 0 and 1"):
            typed(values).flags("c")
    with pytest.raises(DatasetError, match="c: 1 of 2 values are missing"):
        typed([True, None]).flags("c")


def test_an_unknown_column_is_named_with_the_closest() -> None:
    table = DataTable(pa.table({"churned": [1], "region": ["a"]}))
    with pytest.raises(DatasetError, match="churnd: no such column; did you mean churned"):
        table.ids("churnd")
    with pytest.raises(
        DatasetError, match="zip: no such column; the table has churned, region"
    ):
        table.column("zip")


@pytest.mark.parametrize("scale", [-4000, -39, 39])
def test_decimals_that_arrow_cannot_write_are_refused(scale: int) -> None:
    """Arrow's files may have any scale; its own conversion of such values fails."""
    values = pa.Array.from_buffers(
        pa.decimal128(5, scale), 2, [None, pa.py_buffer(np.array([5, 0, 7, 0]).tobytes())]
    )
    table = DataTable(pa.table({"c": values}))
    for read in (lambda: table.matrix(["c"]), lambda: table.ids("c"), lambda: table.flags("c")):
        with pytest.raises(DatasetError, match="c: "):
            read()


def test_names_of_columns_are_distinct() -> None:
    with pytest.raises(DatasetError, match="a: two columns"):
        DataTable(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]))
    with pytest.raises(DatasetError, match="a column has no name"):
        DataTable(pa.table({"": [1]}))


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)), min_size=1)
)
def test_spelled_floats_are_the_doubles_they_spell(values: list[float | None]) -> None:
    texts = [None if value is None else repr(value) for value in values]
    table = spelled(*texts)
    assert table.column("c").kind == "real"
    assert table.column("c").nulls == values.count(None)
    got = table.matrix(["c"], allow_missing=True)[:, 0]
    np.testing.assert_array_equal(got, np.array(values, dtype=np.float64))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.decimals(-(10**15), 10**15, places=6), min_size=1))
def test_decimals_become_the_nearest_doubles(values: list[Decimal]) -> None:
    got = typed(values, pa.decimal128(38, 6)).matrix(["c"])[:, 0]
    assert got.tolist() == [float(value) for value in values]


def test_a_null_in_a_dictionary_is_a_missing_value() -> None:
    """Arrow counts the nulls of the indices alone: such an id was the text "None"."""
    codes = pa.array([0, 1, 0, None], pa.int8())
    found = typed(pa.DictionaryArray.from_arrays(codes, pa.array(["a", None])))
    for read in (found.ids, found.strings):
        with pytest.raises(DatasetError, match="2 of 4 values are missing"):
            read("c")
    assert found.holes("c").tolist() == [False, True, False, True]
    assert found.column("c").nulls == 2
    numbers = typed(pa.DictionaryArray.from_arrays(codes, pa.array([1.5, None])))
    with pytest.raises(DatasetError, match="2 of 4 values are missing"):
        numbers.matrix(["c"])
    whole = typed(pa.DictionaryArray.from_arrays(codes, pa.array([7, None])))
    with pytest.raises(DatasetError, match="2 of 4 values are missing"):
        whole.ids("c")
