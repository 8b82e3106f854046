"""The code by which a person follows their case: the case's reference and a MAC over it.

It is not stored, so access to the database is not enough to open a case.
"""

import hmac
import uuid

from app.service.intake.errors import IntakeCaseError
from app.vault.master import RootSecret

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32: no I, L, O and U
MAC_BYTES = 9  # 72 bits, which can be guessed only by calls to the service
LENGTH = (16 + MAC_BYTES) * 8 // 5
GROUP = 5


def case_code(root_secret: RootSecret, ref: str) -> str:
    """Return the code of a case: 40 letters and digits in groups of five."""
    data = uuid.UUID(ref).bytes
    return grouped(spell(data + _mac(root_secret, data)))


def read_case_code(root_secret: RootSecret, code: str) -> str:
    """Return the reference of the case.

    Raises IntakeCaseError if this is not a code of a case.
    """
    letters = plain(code)
    refused = IntakeCaseError("no case has this code: enter all of its eight groups")
    if len(letters) != LENGTH or not set(letters) <= set(ALPHABET):
        raise refused
    number = 0
    for letter in letters:
        number = number * 32 + ALPHABET.index(letter)
    data = number.to_bytes(16 + MAC_BYTES)
    if not hmac.compare_digest(data[16:], _mac(root_secret, data[:16])):
        raise refused
    return str(uuid.UUID(bytes=data[:16]))


def spell(data: bytes) -> str:
    """Return bytes in the alphabet; the number of bits must be a multiple of five."""
    number, letters = int.from_bytes(data), []
    for _ in range(len(data) * 8 // 5):
        number, place = divmod(number, 32)
        letters.append(ALPHABET[place])
    return "".join(reversed(letters))


def plain(code: str) -> str:
    """Return a code normalised for comparison: I, L and O are read as 1, 1 and 0."""
    kept = "".join(code.upper().replace("-", " ").split())
    return kept.translate(str.maketrans("ILO", "110"))


def grouped(letters: str) -> str:
    """Return letters in groups, to be read aloud and typed."""
    return "-".join(letters[at : at + GROUP] for at in range(0, len(letters), GROUP))


def _mac(root_secret: RootSecret, data: bytes) -> bytes:
    return hmac.digest(root_secret.derive("intake/case"), data, "sha256")[:MAC_BYTES]
