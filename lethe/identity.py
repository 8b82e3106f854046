"""Identities of people: how their values are normalised, hashed and written.

An identity is a kind and a value, such as `email=jane@example.org`. Only digests of normalised
values leave the process that reads them: importers hash whole columns, a request hashes its one
value. Several algorithms are supported, so that lists which arrive hashed can be matched.

A digest of an e-mail address is personal data: anybody who guesses the address can test the
guess. So stored digests are keyed (`app.vault.people`).
"""

import hashlib
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from lethe.errors import LetheError
from lethe.ids import UNSEEN

NORMALISATION = 1  # version of `normalise`; new rules need a new number and new keyed digests
# In the order of `pack`. The weak ones only match lists that others hashed.
ALGORITHMS: dict[str, int] = {"sha256": 32, "sha1": 20, "md5": 16}  # bytes
WIDTH = sum(ALGORITHMS.values())  # bytes of a packed identity
MAX_LENGTH = 1000  # characters of a value
COLUMN = "identity_"  # prefix of a kind: names the array with one identity for each row
HELD_OUT = "held_out_"  # before "records" and before COLUMN: of rows that are not sent
_KIND = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_PHONE_SEPARATORS = re.compile(r"[\s().\-/\u2010-\u2015]+")


class IdentityError(LetheError):
    """The message never repeats the value."""

    slug: ClassVar[str] = "bad-identity"
    title: ClassVar[str] = "Bad identity"
    status: ClassVar[int] = 422


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """A kind, and digests of one value by algorithm: all of them, or the one of a hashed list.

    It has no repr, so that no log line or traceback prints the digests.
    """

    kind: str
    digests: Mapping[str, bytes]


def check_kind(kind: str) -> str:
    """Return `kind`. Raises IdentityError unless it is a lower-case name."""
    if _KIND.fullmatch(kind) is None:
        raise IdentityError(
            "the kind of an identity must be 1 to 32 of a-z, 0-9, - and _, with a "
            "letter first, such as email"
        )
    return kind


def normalise(kind: str, value: str) -> str:
    """Return the normalised value for hashing, version NORMALISATION; "" if nothing remains.

    White space around the value and invisible characters (Unicode's Cf, fillers, variation
    selectors) are ignored, and the result is in Unicode's form NFC.

    - email: case is ignored (Unicode case folding), in the local part too.
    - phone: brackets, spaces, dots, hyphens and slashes are removed, digits of all scripts
      become those of ASCII, and a leading 00 becomes +. A national number stays national: the
      country is not guessed.
    - customer: inner white space is removed and case is ignored; leading zeros are significant.
    - any other kind: nothing else.

    Raises IdentityError: more than MAX_LENGTH characters, a control character, or half a
    character.
    """
    if len(value) > MAX_LENGTH:
        raise IdentityError(f"an identity has at most {MAX_LENGTH} characters")
    value = _seen(value)
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in value.strip()):
        raise IdentityError(
            "an identity has a control character or half a character: write it as plain UTF-8"
        )
    rule = _RULES.get(check_kind(kind), str)
    return unicodedata.normalize("NFC", rule(unicodedata.normalize("NFC", value)).strip())


def _seen(value: str) -> str:
    """Return a value without characters that nobody sees."""
    return "".join(one for one in UNSEEN.sub("", value) if unicodedata.category(one) != "Cf")


def _fold(value: str) -> str:
    # Canonical caseless matching (Unicode, D145), which folding alone does not give.
    return unicodedata.normalize("NFD", value).casefold()


def is_one_mailbox(kind: str, value: str) -> bool:
    """Return whether an e-mail address and its normalised form are of one mailbox.

    Case folding makes ss of ß and k of the Kelvin sign. Who proves the one address must not
    speak for the owner of the other: straße.example and strasse.example are two domains (RFC
    5894 section 7.2). Other kinds are not proven by mail: True. Raises IdentityError as
    `normalise`.
    """
    if kind != "email":
        return True
    normal = normalise(kind, value)
    seen = _seen(value).strip()
    lower = unicodedata.normalize("NFC", unicodedata.normalize("NFC", seen).lower())
    return lower == normal and (seen.isascii() or not normal.isascii())


def _phone(value: str) -> str:
    narrow = unicodedata.normalize("NFKC", _fold(unicodedata.normalize("NFKC", value)))
    ascii_digits = (str(int(one)) if one.isdecimal() else one for one in narrow)
    digits = _PHONE_SEPARATORS.sub("", "".join(ascii_digits))
    return "+" + digits[2:] if digits.startswith("00") else digits


def _customer(value: str) -> str:
    return "".join(_fold(value).split())


_RULES: dict[str, Callable[[str], str]] = {
    "email": _fold,
    "phone": _phone,
    "customer": _customer,
}

MAX_KINDS = 8  # per model; each takes one table row per record
KINDS = tuple(_RULES)  # kinds with their own rules


def digests(kind: str, value: str) -> dict[str, bytes]:
    """Return each algorithm's digest of the normalised value in UTF-8.

    Raises IdentityError: as `normalise`, or nothing remains of the value.
    """
    data = normalise(kind, value).encode()
    if not data:
        raise IdentityError("the value of an identity is empty: write KIND=VALUE")
    return {
        name: hashlib.new(name, data, usedforsecurity=False).digest() for name in ALGORITHMS
    }


def parse(text: str) -> Identity:
    """Parse the identity `KIND=VALUE` or `KIND:sha256=HEX`.

    Raises IdentityError: it is neither, or the value is not valid for its kind.
    """
    name, sign, value = text.partition("=")
    kind, hashed, algorithm = name.partition(":")
    if not sign:
        raise IdentityError("write KIND=VALUE, or KIND:sha256=HEX of a hashed list")
    check_kind(kind)
    if not hashed:
        return Identity(kind, digests(kind, value))
    return Identity(kind, {algorithm: parse_digest(algorithm, value)})


def parse_digest(algorithm: str, text: str) -> bytes:
    """Return the bytes of a digest in hex. Raises IdentityError."""
    if (size := ALGORITHMS.get(algorithm)) is None:
        raise IdentityError(f"hashed lists match by {', '.join(ALGORITHMS)}")
    if re.fullmatch(f"[0-9a-fA-F]{{{2 * size}}}", text) is None:
        raise IdentityError(f"a digest by {algorithm} is {2 * size} hex digits")
    return bytes.fromhex(text)


def pack(found: Mapping[str, bytes]) -> bytes:
    """Return digests as WIDTH bytes, in the order of ALGORITHMS; missing ones are zeros."""
    return b"".join(found.get(name, bytes(size)) for name, size in ALGORITHMS.items())


def unpack(packed: bytes) -> dict[str, bytes]:
    """Return the digests that `pack` wrote; empty if there is no identity."""
    assert len(packed) == WIDTH, "a packed identity has one width"
    found: dict[str, bytes] = {}
    start = 0
    for name, size in ALGORITHMS.items():
        if any(part := packed[start : start + size]):
            found[name] = part
        start += size
    return found
