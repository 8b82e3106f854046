"""Numbers and bytes as text, with exactly one accepted spelling for each value.

If a signed text could be respelled without breaking its signature, one statement would have two
hashes. So each parser formats its result and refuses input that differs.
"""

import base64
import binascii


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
