"""Canonical JSON, and bytes inside it.

Signed data is compared byte for byte. Keys here are ASCII and numbers are integers, so sorted
keys without spaces are already the canonical form of RFC 8785; a test compares the two.
"""

import base64
import binascii
import json
from typing import Any

from workers.secure_sum.errors import MalformedMessageError


def spell(value: object) -> bytes:
    """Return the canonical bytes of a JSON value. Raises ValueError if there are none."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()  # UnicodeEncodeError, a ValueError, for a lone surrogate


def parse(data: bytes) -> Any:
    """Return the JSON value of `data`.

    Raises MalformedMessageError if it is not JSON, or not canonical.
    """
    try:
        value = json.loads(data)
        if spell(value) == data:
            return value
    except (ValueError, RecursionError):
        pass  # raised below, as for JSON that is not canonical
    raise MalformedMessageError("a message is not canonical JSON: send what the client wrote")


def to_text(data: bytes) -> str:
    """Return standard base64 with padding."""
    return base64.b64encode(data).decode()


def to_bytes(text: object) -> bytes:
    """Return the bytes of `to_text`.

    Raises MalformedMessageError for anything else, including non-canonical base64.
    """
    if isinstance(text, str):
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            data = b""
        if to_text(data) == text:
            return data
    raise MalformedMessageError(
        "a message has a value that is not canonical base64: send what the client wrote"
    )
