"""JSON with exactly one spelling, and bytes inside it.

What a member signs is compared byte for byte. Keys here are ASCII and numbers are integers,
so sorted keys without spaces are already the canonical form of RFC 8785; a test compares
the two.
"""

import base64
import binascii
import json
from typing import Any

from workers.secure_sum.errors import MalformedMessageError


def spell(value: object) -> bytes:
    """Return the one spelling of a JSON value. Raises ValueError if it has none."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()  # UnicodeEncodeError, a ValueError, for a lone surrogate


def parse(data: bytes) -> Any:
    """Return the JSON value of `data`.

    Raises:
        MalformedMessageError: Not JSON, or JSON spelt in another way.
    """
    try:
        value = json.loads(data)
        if spell(value) == data:
            return value
    except (ValueError, RecursionError):
        pass  # named below, the same way as a value that is spelt differently
    raise MalformedMessageError("a message is not canonical JSON: send what the client wrote")


def to_text(data: bytes) -> str:
    """Return standard base64 with padding."""
    return base64.b64encode(data).decode()


def to_bytes(text: object) -> bytes:
    """Return the bytes of `to_text`.

    Raises:
        MalformedMessageError: Anything else, another spelling of the same bytes included.
    """
    if isinstance(text, str):
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            data = b""
        if to_text(data) == text:
            return data
    raise MalformedMessageError("a message holds bytes that are not canonical base64")
