"""The schema reads one spelling of each value and writes the same."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe import canonical
from lethe.certificates import shape
from lethe.certificates.errors import ShapeError
from lethe.certificates.shape import Blob, Moment, Name, Sha256, Uuid
from tests.fuzz import fuzz


@dataclass(frozen=True)
class Inner:
    some_count: int


@dataclass(frozen=True)
class Sample:
    class_: Literal["a", "b"]
    odd_name: Annotated[str, Name("_odd")]
    flag: bool
    root: bytes
    blob: Blob
    digest: Sha256
    at: Moment
    ref: Uuid
    maybe: Inner | None
    pair: tuple[str, str]
    many: tuple[Inner, ...]
    table: Mapping[str, str]


@dataclass(frozen=True)
class Grown:
    name: str
    later: tuple[Inner, ...] = ()


GOOD: dict[str, Any] = {
    "class": "a",
    "_odd": "x",
    "flag": True,
    "root": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    "blob": "QQ==",
    "digest": {"sha256": "ab" * 32},
    "at": "2026-11-21T08:30:00Z",
    "ref": "0b5bbbd2-1d3c-4c3b-8b63-9a4c8f3f8a01",
    "maybe": None,
    "pair": ["x", "y"],
    "many": [{"someCount": "0"}, {"someCount": "17"}],
    "table": {"k": "v"},
}

# member, value, why it is not the one spelling
BAD: list[tuple[str, Any, str]] = [
    ("class", "c", "not a choice"),
    ("class", 1, "number for a choice"),
    ("class", ["a"], "unhashable for a choice"),
    ("_odd", "", "empty string"),
    ("_odd", None, "null string"),
    ("flag", 1, "1 for true"),
    ("flag", "true", "text for true"),
    ("root", "AAAA", "3 bytes"),
    ("root", GOOD["root"][:-2] + "B=", "base64 with padding bits set"),
    ("root", GOOD["root"] + "\n", "newline"),
    ("root", 5, "number"),
    ("blob", "", "empty bytes"),
    ("blob", "QQ", "no padding"),
    ("blob", "QR==", "padding bits set"),
    ("blob", "Q Q==", "space"),
    ("blob", "-_-_", "URL-safe alphabet"),
    ("blob", "ＱＱ==", "full-width letters"),
    ("digest", "ab" * 32, "not a DigestSet"),
    ("digest", {"sha256": "AB" * 32}, "upper case"),
    ("digest", {"sha256": "ab" * 31}, "31 bytes"),
    ("digest", {"sha256": "ab" * 32 + "\n"}, "newline"),
    ("digest", {"sha512": "ab" * 32}, "other algorithm"),
    ("digest", {"sha256": "ab" * 32, "sha1": ""}, "two algorithms"),
    ("at", "2026-11-21T08:30:00+00:00", "offset for Z"),
    ("at", "2026-11-21 08:30:00Z", "space for T"),
    ("at", "2026-11-21T08:30:00.5Z", "fraction"),
    ("at", "2026-11-21T08:30:00z", "lower-case z"),
    ("at", "2026-02-30T08:30:00Z", "no such day"),
    ("at", "2026-11-21T08:30:60Z", "leap second"),
    ("at", "２026-11-21T08:30:00Z", "digit of another script"),
    ("at", 1, "number"),
    ("ref", GOOD["ref"].upper(), "upper-case UUID"),
    ("ref", "{" + GOOD["ref"] + "}", "braces"),
    ("ref", 3, "number"),
    ("maybe", {}, "empty object"),
    ("maybe", {"someCount": "1", "more": "2"}, "unknown member"),
    ("maybe", {"some_count": "1"}, "the attribute's name"),
    ("maybe", {"someCount": 1}, "a number not in a string"),
    ("maybe", {"someCount": "01"}, "leading zero"),
    ("maybe", {"someCount": "-1"}, "sign"),
    ("maybe", {"someCount": "+1"}, "plus"),
    ("maybe", {"someCount": "1_0"}, "underscore"),
    ("maybe", {"someCount": "１"}, "digit of another script"),
    ("maybe", {"someCount": str(2**63)}, "beyond int64"),
    ("maybe", {"someCount": "9" * 5000}, "beyond what int() reads"),
    ("pair", ["x"], "one of two"),
    ("pair", ["x", "y", "z"], "three of two"),
    ("pair", "xy", "string for array"),
    ("many", {"0": {"someCount": "0"}}, "object for array"),
    ("many", [None], "null element"),
    ("table", {"": "v"}, "empty name"),
    ("table", {"k": 1}, "number value"),
    ("table", [["k", "v"]], "array for object"),
]


def test_a_document_comes_back_as_it_was() -> None:
    sample = shape.decode(Sample, canonical.encode(GOOD))
    assert shape.write(sample) == GOOD
    assert shape.encode(sample) == canonical.encode(GOOD)
    assert sample.many == (Inner(0), Inner(17))
    assert sample.root == bytes(32)
    assert sample.blob == b"A"
    assert sample.at == datetime(2026, 11, 21, 8, 30, tzinfo=UTC)


@pytest.mark.parametrize(("name", "value", "why"), BAD, ids=[why for *_, why in BAD])
def test_another_spelling_is_refused_at_its_place(name: str, value: Any, why: str) -> None:
    with pytest.raises(ShapeError) as caught:
        shape.read(Sample, GOOD | {name: value})
    assert caught.value.path.startswith(name)


@pytest.mark.parametrize("name", GOOD)
def test_a_missing_or_renamed_member_is_refused(name: str) -> None:
    rest = {key: value for key, value in GOOD.items() if key != name}
    with pytest.raises(ShapeError, match="exactly"):
        shape.read(Sample, rest)
    with pytest.raises(ShapeError, match="exactly"):
        shape.read(Sample, rest | {name + "x": GOOD[name]})


@pytest.mark.parametrize("value", [None, [], "", 0, True, [GOOD]])
def test_only_an_object_is_a_record(value: Any) -> None:
    with pytest.raises(ShapeError):
        shape.read(Sample, value)


def test_the_place_is_named_and_the_value_is_not() -> None:
    document = GOOD | {"many": [{"someCount": "0"}, {"someCount": "alice@example.org"}]}
    with pytest.raises(ShapeError) as caught:
        shape.read(Sample, document)
    assert caught.value.detail == "many[1].someCount must be a decimal number in a string"


def test_names_of_the_document_stay_out_of_messages() -> None:
    with pytest.raises(ShapeError) as caught:
        shape.read(Sample, GOOD | {"table": {"alice@example.org": 1}})
    assert "alice" not in caught.value.detail


def test_times_are_written_in_utc_to_the_second() -> None:
    east = datetime(2026, 1, 1, 1, 0, 0, 999, tzinfo=timezone(timedelta(hours=2)))
    sample = shape.read(Sample, GOOD)
    fields = {name: getattr(sample, name) for name in Sample.__dataclass_fields__}
    assert shape.write(Sample(**fields | {"at": east}))["at"] == "2025-12-31T23:00:00Z"
    with pytest.raises(ShapeError, match="zone"):
        shape.write(Sample(**fields | {"at": datetime(2026, 1, 1)}))


def test_what_no_reader_would_take_is_not_written() -> None:
    with pytest.raises(ShapeError, match="someCount"):
        shape.encode(Inner(-1))


def test_a_member_with_a_default_is_left_out_of_a_document_without_it() -> None:
    assert shape.write(Grown("a")) == {"name": "a"}
    assert shape.read(Grown, {"name": "a"}) == Grown("a")
    grown = Grown("a", (Inner(3),))
    assert shape.read(Grown, shape.write(grown)) == grown
    others: list[dict[str, Any]] = [
        {"name": "a", "later": []},
        {"later": []},
        {"name": "a", "more": []},
    ]
    for other in others:
        with pytest.raises(ShapeError):
            shape.read(Grown, other)


def test_a_type_without_a_spelling_is_a_bug_of_ours() -> None:
    @dataclass
    class Loose:
        number: float

    with pytest.raises(TypeError, match="no JSON spelling"):
        shape.read(Loose, {"number": 1.0})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@fuzz(100)
@given(st.sampled_from(sorted(GOOD)), json_values)
def test_any_json_is_read_back_exactly_or_refused(name: str, value: Any) -> None:
    document = GOOD | {name: value}
    try:
        sample = shape.read(Sample, document)
    except ShapeError:
        return
    assert shape.write(sample) == document
