"""Ids of records, clients and subjects: texts that are compared byte by byte.

Two ids that look the same must be the same. Otherwise an erasure of "José" is certified while
the rows of another spelling of "José" stay. So only one spelling is accepted: Unicode's form
NFC, no characters without a rendering, and no white space other than U+0020, nor that at the
ends. Letters of different scripts that look alike remain different ids.
"""

import re
import unicodedata

MOST = 200  # characters
# Control, format, half and private characters, and white space, except for U+0020.
INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Zs", "Zl", "Zp")
# What Unicode calls Default_Ignorable_Code_Point (DerivedCoreProperties.txt) and is in none of
# these, such as fillers and variation selectors; and U+2800, the empty Braille pattern.
UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
RULE = (
    f"1 to {MOST} printable characters in Unicode form NFC, without invisible characters, "
    "without white space other than U+0020, and none at the ends"
)


def is_id(text: str) -> bool:
    """Return whether a text is an id in its one spelling."""
    if not 0 < len(text) <= MOST or text != text.strip():
        return False
    if text.isascii():
        return text.isprintable()
    if UNSEEN.search(text) or not unicodedata.is_normalized("NFC", text):
        return False
    return not any(one != " " and unicodedata.category(one) in INVISIBLE for one in text)


def check_id(text: str) -> str:
    """Return an id. Raises ValueError, without the text: it is none."""
    if not is_id(text):
        raise ValueError(f"an id has {RULE}")
    return text
