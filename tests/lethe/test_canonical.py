"""RFC 8785 by the standard library's encoder, where it may write it, and by rfc8785 elsewhere."""

from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from lethe import canonical

NAMES = st.text(st.characters(), max_size=4)
TEXTS = st.text(max_size=6) | st.sampled_from(
    ["\ud800", "\x00\x1f\x7f\u2028", '"\\/\b\f\n\r\t', "\U0001f600\ue000"]
)
EXACT = st.none() | st.booleans() | st.integers(1 - 2**53, 2**53 - 1) | TEXTS


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
        max_leaves=12,
    )


VALUES = nested(EXACT | st.integers(-(2**60), 2**60) | st.floats(allow_nan=True))


def of(encode: Any, value: Any) -> bytes | type[Exception]:
    try:
        return bytes(encode(value))
    except ValueError as error:
        return type(error)


@given(VALUES)
@example({"b": 1, "a": [True, None, "é"], "B": {"": -1}})
@example({"\U0001f600": 1, "\ue000": 2})  # by UTF-16 the first one comes first
@example(2**53)
@example(-(2**53))
def test_it_is_what_the_library_writes(value: Any) -> None:
    assert of(canonical.encode, value) == of(rfc8785.dumps, value)


@pytest.mark.parametrize("value", [{1: 2}, {True: 1}, {None: 1}, b"bytes", {"a": {1, 2}}])
def test_what_is_no_json_is_refused_as_by_the_library(value: Any) -> None:
    with pytest.raises(rfc8785.CanonicalizationError):
        canonical.encode(value)


@given(nested(EXACT))  # a float may be written as an integer that is too large to be read
def test_what_was_encoded_decodes_and_no_other_spelling_does(value: Any) -> None:
    data = of(canonical.encode, value)
    if isinstance(data, bytes):
        assert canonical.encode(canonical.decode(data)) == data
        with pytest.raises(canonical.NotCanonicalError):
            canonical.decode(data + b" ")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-16"])
def test_other_encodings_than_utf_8_are_not_guessed(encoding: str) -> None:
    data = '{"a":1}'.encode(encoding)
    with pytest.raises(ValueError, match=r"codec|Expecting|char"):
        canonical.loads(data)
    with pytest.raises(canonical.NotCanonicalError, match="not valid JSON"):
        canonical.decode(data)


def nested_lists(deep: int) -> Any:
    value: Any = 1
    for _ in range(deep):
        value = [value]
    return value


def test_a_bound_on_nesting_and_not_the_callers_stack_decides() -> None:
    """Else one verifier would refuse what the other accepts, or one caller what another does."""
    most = canonical.MOST_NESTED
    assert canonical.decode(b"[" * most + b"1" + b"]" * most) == nested_lists(most)
    assert canonical.encode({"a": nested_lists(most - 1)})
    for deep in (most + 1, 300, 100_000):
        with pytest.raises(canonical.NotCanonicalError, match="nested more than 64 deep"):
            canonical.decode(b"[" * deep + b"1" + b"]" * deep)
    for value in (nested_lists(most + 1), {"a": nested_lists(most)}):
        with pytest.raises(canonical.NotCanonicalError, match="nested more than 64 deep"):
            canonical.encode(value)


@pytest.mark.parametrize(
    ("data", "valid"),
    [
        (b"9" * 5000, True),
        (b"1" + b"0" * 40, True),
        (b"9.223372036854776e+18", True),
        (b"1e400", True),
        (rb'"\ud800"', True),
        (b"NaN", False),
        (b"[1", False),
        (b"\xef\xbb\xbf1", False),
    ],
)
def test_what_is_json_and_not_canonical_is_told_apart(data: bytes, *, valid: bool) -> None:
    with pytest.raises(canonical.NotCanonicalError) as refused:
        canonical.decode(data)
    assert ("canonical form" in refused.value.detail) == valid
