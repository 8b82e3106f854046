"""Signed notes: text with one signature line for each key (C2SP signed-note, Ed25519).

<text, ending in a newline>
<blank line>
— <key name> base64(key id || signature)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from app.errors import LetheError
from app.ledger.spelling import format_base64, parse_base64

MAX_NOTE = 1_000_000  # bytes, as in golang.org/x/mod/sumdb/note
MAX_SIGNATURES = 100  # the specification asks for at least 16
ED25519 = b"\x01"  # signature type byte, C2SP signed-note "Signature types"
KEY_ID_SIZE = 4


class NoteError(LetheError):
    """A note, key or key name that is malformed, or a note that no known key signed."""

    slug = "bad-note"
    title = "Signed note does not verify"
    status = 400


@dataclass(frozen=True, slots=True)
class NoteVerifier:
    """A public key and the name it signs under; (name, key_id) finds it in a note.

    `key_id` is the first 4 bytes of `log_id`. Raises NoteError if it is not.
    """

    name: str
    key_id: bytes
    key: Ed25519PublicKey

    def __post_init__(self) -> None:
        _require_name(self.name)
        if self.key_id != self.log_id[:KEY_ID_SIZE]:
            raise NoteError("the key id does not belong to this name and key")

    @classmethod
    def of(cls, name: str, key: Ed25519PublicKey) -> "NoteVerifier":
        """Return the verifier for `key` under `name`, its key id computed."""
        _require_name(name)
        return cls(name, _key_hash(name, key)[:KEY_ID_SIZE], key)

    @property
    def log_id(self) -> bytes:
        """SHA256(name || 0x0A || type || public key), 32 bytes."""
        return _key_hash(self.name, self.key)

    @property
    def vkey(self) -> str:
        """The verifier key as one line of text, without newline: name+id+base64."""
        encoded = format_base64(ED25519 + self.key.public_bytes_raw())
        return f"{self.name}+{self.key_id.hex()}+{encoded}"


@dataclass(frozen=True, slots=True)
class NoteSigner:
    """A private key and the name it signs under."""

    name: str
    key: Ed25519PrivateKey

    @property
    def verifier(self) -> NoteVerifier:
        """The public half."""
        return NoteVerifier.of(self.name, self.key.public_key())


def parse_vkey(text: str) -> NoteVerifier:
    """Read a verifier key: `name+hex key id+base64(0x01 || public key)`.

    Raises:
        NoteError: Malformed, not Ed25519, or the key id does not match name and key.
    """
    name, _, rest = text.partition("+")
    _, _, encoded = rest.partition("+")  # base64 may hold a plus itself
    try:
        data = parse_base64(encoded)
        if data[:1] != ED25519:
            raise ValueError
        verifier = NoteVerifier.of(name, Ed25519PublicKey.from_public_bytes(data[1:]))
    except ValueError:
        raise NoteError("a verifier key is name+key id+base64 of an Ed25519 key") from None
    if verifier.vkey != text:
        raise NoteError("the verifier key's id is not the one of its name and key")
    return verifier


def sign_note(text: str, *signers: NoteSigner) -> str:
    """Return `text` with a signature line by each signer.

    Raises:
        NoteError: `text` cannot be a note's text, or there is no signer.
    """
    _require_text(text)
    if not signers:
        raise NoteError("a note needs at least one signature")
    message = text.encode()
    lines = []
    for signer in signers:
        signature = signer.verifier.key_id + signer.key.sign(message)
        lines.append(f"— {signer.name} {format_base64(signature)}\n")
    return text + "\n" + "".join(lines)


def open_note(note: str, verifiers: Sequence[NoteVerifier]) -> str:
    """Return the text of a note that at least one of `verifiers` signed.

    Signatures by unknown keys are ignored, as the specification demands: that is how keys
    are rotated and witnesses added.

    Raises:
        NoteError: Malformed, or a known key's signature is wrong, or there is none.
    """
    known = {(verifier.name, verifier.key_id): verifier for verifier in verifiers}
    if len(known) != len(verifiers):
        raise NoteError("two of the known keys share one name and key id")
    text, signatures = _split_note(note)
    verified = 0
    for name, key_id, signature in signatures:
        verifier = known.get((name, key_id))
        if verifier is None:
            continue
        try:
            verifier.key.verify(signature, text.encode())
        except InvalidSignature:
            raise NoteError("the note carries a wrong signature by a known key") from None
        verified += 1
    if not verified:
        raise NoteError("no known key signed the note: is it another log's, or its key new?")
    return text


def _split_note(note: str) -> tuple[str, list[tuple[str, bytes, bytes]]]:
    """Return the text and each signature line as (name, key id, signature)."""
    if len(note) > MAX_NOTE:
        raise NoteError(f"a note has at most {MAX_NOTE} bytes")
    _require_text(note)
    # The last empty line separates: the text may hold empty lines of its own.
    head, separator, tail = note.rpartition("\n\n")
    lines = tail.split("\n")[:-1]
    if not separator or not lines:
        raise NoteError("a note is text, a blank line and signature lines")
    if len(lines) > MAX_SIGNATURES:
        raise NoteError(f"a note has at most {MAX_SIGNATURES} signatures")
    return head + "\n", [_parse_signature(line) for line in lines]


def _parse_signature(line: str) -> tuple[str, bytes, bytes]:
    if not line.startswith("— "):
        raise NoteError("a signature line starts with an em dash and a space")
    name, _, encoded = line[2:].partition(" ")
    _require_name(name)
    try:
        data = parse_base64(encoded)
    except ValueError:
        raise NoteError("a signature is canonical base64") from None
    if len(data) <= KEY_ID_SIZE:
        raise NoteError("a signature is a 4-byte key id and at least one byte more")
    return name, data[:KEY_ID_SIZE], data[KEY_ID_SIZE:]


def _require_text(text: str) -> None:
    """Refuse what no note may hold: no final newline, control characters, bad Unicode."""
    if not text.endswith("\n"):
        raise NoteError("a note's text ends in a newline")
    if any(character < " " and character != "\n" for character in text):
        raise NoteError("a note holds no control character but newline")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:  # a lone surrogate
        raise NoteError("a note is valid UTF-8") from None
    if size > MAX_NOTE:
        raise NoteError(f"a note has at most {MAX_NOTE} bytes")


def _require_name(name: str) -> None:
    if not name or "+" in name or any(c.isspace() or c < " " for c in name):
        raise NoteError("a key name is not empty and has no space, plus or control character")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise NoteError("a key name is valid UTF-8") from None


def _key_hash(name: str, key: Ed25519PublicKey) -> bytes:
    # C2SP signed-note: key ID = SHA-256(key name || 0x0A || type || public key)[:4]
    return sha256(name.encode() + b"\n" + ED25519 + key.public_bytes_raw()).digest()
