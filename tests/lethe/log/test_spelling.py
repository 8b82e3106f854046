"""One spelling for each value: what formats parses, and nothing else does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.canonical import format_base64, parse_base64, parse_decimal


@given(st.binary(max_size=100))
def test_base64_reads_back(data: bytes) -> None:
    assert parse_base64(format_base64(data)) == data


@given(st.text(alphabet="AQgw=+/-_ \n", max_size=8))
def test_base64_accepts_only_its_own_spelling(text: str) -> None:
    try:
        data = parse_base64(text)
    except ValueError:
        return
    assert format_base64(data) == text


@pytest.mark.parametrize(
    "text", ["QR==", "QQ", "QQ=", "QQ===", "Q", "QQ==\n", " QQ==", "-_-_", "QQ==QQ==", "Ä"]
)
def test_base64_refuses(text: str) -> None:
    with pytest.raises(ValueError):
        parse_base64(text)


@given(st.integers(0, 2**64))
def test_decimal_reads_back_below_its_limit(value: int) -> None:
    assert parse_decimal(str(value), value + 1) == value
    with pytest.raises(ValueError):
        parse_decimal(str(value), value)


@pytest.mark.parametrize(
    "text",
    ["", "+1", "-1", "-0", "01", "00", " 1", "1 ", "1\n", "1_0", "1.0", "0x1", "٣"],
)
def test_decimal_refuses(text: str) -> None:
    with pytest.raises(ValueError):
        parse_decimal(text, 2**63)


def test_decimal_never_converts_what_is_too_long() -> None:
    # int() refuses past 4,300 digits with an error of its own, and is quadratic before.
    with pytest.raises(ValueError, match="in range"):
        parse_decimal("9" * 5000, 2**63)
