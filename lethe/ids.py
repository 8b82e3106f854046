"""Ids of records, clients and subjects: texts that are compared byte by byte.

Two ids that look the same must be the same. Otherwise an erasure of "José" is certified while
the rows of another spelling of "José" stay. So only one spelling is accepted: Unicode's form
NFC, no characters without a rendering, and no white space at the ends. Letters of different
scripts that look alike remain different ids.
"""

import unicodedata

MOST = 200  # characters
INVISIBLE = ("Cc", "Cf", "Cs", "Co")  # control, format, half and private characters
RULE = (
    f"1 to {MOST} printable characters in Unicode form NFC, without invisible characters or "
    "white space at the ends"
)


def is_id(text: str) -> bool:
    """Return whether a text is an id in its one spelling."""
    if not 0 < len(text) <= MOST or text != text.strip():
        return False
    if text.isascii():
        return text.isprintable()
    return unicodedata.is_normalized("NFC", text) and not any(
        unicodedata.category(one) in INVISIBLE for one in text
    )


def check_id(text: str) -> str:
    """Return an id. Raises ValueError, without the text: it is none."""
    if not is_id(text):
        raise ValueError(f"an id has {RULE}")
    return text
