"""One spelling for each value: JSON by RFC 8785, base64 and decimals.

All that Lethe hashes or signs is in this form, and all that it reads back must be. If a signed
text could be respelled without breaking its signature, one statement would have two hashes.
"""

import base64
import binascii
import json
from typing import Any

import rfc8785

from lethe.errors import LetheError


class NotCanonicalError(LetheError):
    """Bytes that are not JSON, or are JSON in a spelling other than the canonical one."""

    slug, title, status = "not-canonical", "Not canonical JSON", 400


MOST_NESTED = 64  # objects and arrays within each other, in canonical JSON
DUPLICATE = "an object has a name twice"


class DuplicateKeyError(ValueError):
    """A JSON object with a duplicate name: parsers differ in which value they take."""


def loads(data: str | bytes) -> Any:
    """Parse JSON in any spelling; objects must not have duplicate names (RFC 8259 section 4).

    Raises:
        DuplicateKeyError: One has. It is a ValueError.
        ValueError: Not JSON.
        RecursionError: Nested too deeply.
    """
    # Given bytes, json would also guess UTF-16 and UTF-32, which RFC 8259 section 8.1 forbids.
    text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise DuplicateKeyError(DUPLICATE)
    return found


def encode(value: Any) -> bytes:
    """Return the RFC 8785 form of a JSON value. Floats are allowed but discouraged.

    Raises NotCanonicalError: nested more than MOST_NESTED deep, so `decode` would refuse it.
    """
    if _is_deep(value):
        raise NotCanonicalError(f"the JSON is nested more than {MOST_NESTED} deep")
    if _is_plain(value):
        try:
            return _PLAIN.encode(value).encode()
        except UnicodeEncodeError:  # a lone surrogate, which the library reports in its own way
            pass
    return rfc8785.dumps(value)


# Without floats and with ASCII names only, whose order equals that of UTF-16, the standard
# library's C encoder writes the same bytes, many times faster.
_PLAIN = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), check_circular=False
)
_MOST = 2**53 - 1  # RFC 8785 appendix B: larger integers are not interoperable


def _is_plain(value: Any) -> bool:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        kind = type(item)
        if kind is str or item is None or kind is bool:
            continue
        if kind is dict:
            for name in item:
                if type(name) is not str or not name.isascii():
                    return False
            waiting.extend(item.values())
        elif kind is list:
            waiting.extend(item)
        elif kind is not int or not -_MOST <= item <= _MOST:
            return False
    return True


def decode(data: bytes) -> Any:
    """Parse `data` and check by round trip that it was canonical.

    Raises NotCanonicalError: the bytes are not JSON, not in canonical form, or nested more than
    MOST_NESTED deep. Without that bound, it would depend on the caller's own depth what
    Python's recursion limit allows.
    """
    try:
        value = json.loads(data.decode())  # UTF-8 alone, as the verifier in JavaScript
        if encode(value) == data:
            return value
    except (ValueError, RecursionError, rfc8785.CanonicalizationError, NotCanonicalError):
        pass
    raise NotCanonicalError(
        "the JSON is valid but not in RFC 8785 canonical form"
        if _is_json(data)
        else f"the bytes are not valid JSON, or nested more than {MOST_NESTED} deep"
    )


def _is_json(data: bytes) -> bool:
    """Return whether it is JSON (RFC 8259), with numbers of any size, and not too deep."""
    try:
        value = json.loads(data.decode(), parse_int=float, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return False
    return not _is_deep(value)


def _no_json(constant: str) -> None:
    raise ValueError(constant)  # NaN and Infinity, which Python reads


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MOST_NESTED):
        inner = [
            one.values() if type(one) is dict else one
            for one in level
            if type(one) in (dict, list)
        ]
        level = [one for values in inner for one in values]
        if not level:
            return False
    return any(type(one) in (dict, list) for one in level)


def format_base64(data: bytes) -> str:
    """Return standard, padded base64 (RFC 4648 section 4)."""
    return base64.b64encode(data).decode("ascii")


def parse_base64(text: str) -> bytes:
    """Parse standard base64. Raises ValueError for other spellings than `format_base64`'s.

    Python's own decoder accepts non-zero padding bits: "QQ==" and "QR==" are both b"A".
    """
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None
    if format_base64(data) != text:
        raise ValueError("not canonical base64")
    return data


def parse_decimal(text: str, limit: int) -> int:
    """Parse a decimal below `limit`. Raises ValueError for signs, spaces, leading zeros.

    int() also accepts "+1", " 1", "1_0" and the digits of other scripts.
    """
    if not text or len(text) > len(str(limit)):  # int() takes quadratic time
        raise ValueError("not a decimal number in range")
    value = int(text)
    if str(value) != text or not 0 <= value < limit:
        raise ValueError("not a decimal number in range")
    return value
