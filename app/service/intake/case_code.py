"""The code by which a person follows their case: the case's reference and a MAC over it.

Nothing of it is stored, so whoever reads or writes the database opens no case with that.
"""

import hmac
import uuid

from app.service.intake.errors import IntakeCaseError
from app.vault.master import RootSecret

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32: no I, L, O and U
MAC_BYTES = 9  # 72 bits, guessed in calls to the service alone
LENGTH = (16 + MAC_BYTES) * 8 // 5
GROUP = 5


def case_code(root_secret: RootSecret, ref: str) -> str:
    """Return the code of a case: 40 letters and digits in groups of five."""
    data = uuid.UUID(ref).bytes
    return grouped(spell(data + _mac(root_secret, data)))


def read_case_code(root_secret: RootSecret, code: str) -> str:
    """Return the reference of the case.

    Raises:
        IntakeCaseError: This is no code of a case, of whatever kind.
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
    """Return bytes in the alphabet; their bits are a multiple of five."""
    number, letters = int.from_bytes(data), []
    for _ in range(len(data) * 8 // 5):
        number, place = divmod(number, 32)
        letters.append(ALPHABET[place])
    return "".join(reversed(letters))


def plain(code: str) -> str:
    """Return a code as it is compared: what people mistype is read as what is meant."""
    kept = "".join(code.upper().replace("-", " ").split())
    return kept.translate(str.maketrans("ILO", "110"))


def grouped(letters: str) -> str:
    """Return letters in groups, to be read aloud and typed."""
    return "-".join(letters[at : at + GROUP] for at in range(0, len(letters), GROUP))


def _mac(root_secret: RootSecret, data: bytes) -> bytes:
    return hmac.digest(root_secret.derive("intake/case"), data, "sha256")[:MAC_BYTES]
