"""Signed notes: text with one signature line for each key (C2SP signed-note).

<text, ending in a newline>
<blank line>
— <key name> base64(key id || signature)

Logs sign with Ed25519 (type 0x01). Witnesses of a checkpoint sign a time with it, in Ed25519
(0x04) or ML-DSA-44 (0x06): `lethe.log.cosignature`.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Protocol

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PublicKey

from lethe.canonical import format_base64, parse_base64
from lethe.errors import LetheError
from lethe.log.cosignature import ed25519_message, ml_dsa_message, split_cosignature
from lethe.records import dataclass
from lethe.weak_keys import is_weak

MAX_NOTE = 1_000_000  # bytes, as in golang.org/x/mod/sumdb/note
MAX_SIGNATURES = 100  # the specification asks for at least 16
KEY_ID_SIZE = 4
# Signature type bytes, C2SP signed-note "Signature types".
ED25519, COSIGNATURE, ML_DSA_44 = b"\x01", b"\x04", b"\x06"
ALGORITHMS = {
    ED25519: "Ed25519",
    COSIGNATURE: "Ed25519 with a time",
    ML_DSA_44: "ML-DSA-44 with a time",
}

PublicKey = Ed25519PublicKey | MLDSA44PublicKey


class NoteError(LetheError):
    """A note, key or key name that is malformed, or a note that no known key signed."""

    slug, title, status = "bad-note", "Signed note does not verify", 400


@dataclass(frozen=True, slots=True)
class NoteVerifier:
    """A public key with its name and kind; (name, key_id) finds its line in a note.

    `kind` is the signature type byte. `key_id` is the first 4 bytes of `log_id`. Raises
    NoteError if it is not, or if the key does not match the kind.
    """

    name: str
    key_id: bytes
    key: PublicKey
    kind: bytes = ED25519

    def __post_init__(self) -> None:
        _require_name(self.name)
        of_kind = MLDSA44PublicKey if self.kind == ML_DSA_44 else Ed25519PublicKey
        if self.kind not in ALGORITHMS or not isinstance(self.key, of_kind):
            raise NoteError("the key is not of the kind that its type byte says")
        if self.key_id != self.log_id[:KEY_ID_SIZE]:
            raise NoteError("the key id does not belong to this name and key")

    @classmethod
    def of(cls, name: str, key: PublicKey, kind: bytes = ED25519) -> "NoteVerifier":
        """Return the verifier for `key` under `name`, its key id computed."""
        _require_name(name)
        return cls(name, _key_hash(name, key, kind)[:KEY_ID_SIZE], key, kind)

    @property
    def log_id(self) -> bytes:
        """SHA256(name || 0x0A || type || public key), 32 bytes."""
        return _key_hash(self.name, self.key, self.kind)

    @property
    def vkey(self) -> str:
        """The verifier key as one line of text, without newline: name+id+base64."""
        encoded = format_base64(self.kind + self.key.public_bytes_raw())
        return f"{self.name}+{self.key_id.hex()}+{encoded}"

    def check(self, text: str, signature: bytes) -> None:
        """Check this key's `signature`, given without its key id, over the note's `text`.

        Raises InvalidSignature if it does not verify.
        """
        message = text.encode()
        if self.kind != ED25519:
            try:
                time, signature = split_cosignature(signature)
                if self.kind == COSIGNATURE:
                    message = ed25519_message(time, text)
                else:
                    message = ml_dsa_message(self.name, time, text)
            except ValueError:
                raise InvalidSignature from None
        self.key.verify(signature, message)


@dataclass(frozen=True, slots=True)
class SignatureLine:
    """One signature line as it is in a note, unverified."""

    name: str
    key_id: bytes
    signature: bytes

    @property
    def text(self) -> str:
        """The line as it is spelled, with its newline."""
        return f"— {self.name} {format_base64(self.key_id + self.signature)}\n"


@dataclass(frozen=True, slots=True)
class OpenedNote:
    """A note that at least one known key signed.

    `verified` has the key of each line that was verified, in their order. `unverified` has the
    lines of unknown keys. Those are not protected: anybody who forwards a note may add, change
    and remove them.
    """

    text: str
    verified: tuple[NoteVerifier, ...]
    unverified: tuple[SignatureLine, ...]


class NoteKey(Protocol):
    """An Ed25519 private key: one of `cryptography`, or one in a hardware device."""

    def sign(self, data: bytes) -> bytes:
        """Return the signature over `data`, 64 bytes (RFC 8032)."""

    def public_key(self) -> Ed25519PublicKey:
        """Return the public half."""


@dataclass(frozen=True, slots=True)
class NoteSigner:
    """A private key and the name it signs under."""

    name: str
    key: NoteKey

    @property
    def verifier(self) -> NoteVerifier:
        """The public half."""
        return NoteVerifier.of(self.name, self.key.public_key())


def parse_vkey(text: str) -> NoteVerifier:
    """Parse a verifier key: `name+hex key id+base64(type || public key)`.

    Raises NoteError: malformed, of an unsupported type, a key under which anybody signs, or the
    key id does not match name and key.
    """
    name, _, rest = text.partition("+")
    _, _, encoded = rest.partition("+")  # base64 may contain a plus itself
    try:
        data = parse_base64(encoded)
        kind, raw = data[:1], data[1:]
        if kind not in ALGORITHMS or (kind != ML_DSA_44 and is_weak(raw)):
            raise ValueError
        key: PublicKey
        if kind == ML_DSA_44:
            key = MLDSA44PublicKey.from_public_bytes(raw)
        else:
            key = Ed25519PublicKey.from_public_bytes(raw)
        verifier = NoteVerifier.of(name, key, kind)
    except (ValueError, UnsupportedAlgorithm):
        raise NoteError(
            "a verifier key is name+key id+base64 of an Ed25519 key, or of a witness's "
            "Ed25519 or ML-DSA-44 key"
        ) from None
    if verifier.vkey != text:
        raise NoteError("the verifier key's id is not the one of its name and key")
    return verifier


def parse_log_vkey(text: str) -> NoteVerifier:
    """Parse the verifier key of a log.

    Raises NoteError: as `parse_vkey`, or it is a witness's key, which never signs for a log.
    """
    verifier = parse_vkey(text)
    if verifier.kind != ED25519:
        raise NoteError("this is a witness's key: a log's key is Ed25519 of type 0x01")
    return verifier


def sign_note(text: str, *signers: NoteSigner) -> str:
    """Return `text` with a signature line by each signer.

    Raises NoteError: `text` cannot be a note's text, or there is no signer.
    """
    _require_text(text)
    if not signers:
        raise NoteError("a note needs at least one signature")
    message = text.encode()
    lines = []
    for signer in signers:
        signature = signer.key.sign(message)
        lines.append(SignatureLine(signer.name, signer.verifier.key_id, signature).text)
    return text + "\n" + "".join(lines)


def read_note(note: str, verifiers: Sequence[NoteVerifier]) -> OpenedNote:
    """Verify a note that at least one of `verifiers` signed.

    Signatures by unknown keys are ignored, as the specification demands: that allows key
    rotation and new witnesses. A known name with another key id is an unknown key, and so is a
    known key id under another name. Raises NoteError: malformed, a known key's signature is
    wrong, or there is none.
    """
    known = {(verifier.name, verifier.key_id): verifier for verifier in verifiers}
    if len(known) != len(verifiers):
        raise NoteError("two of the known keys share one name and key id")
    text, lines = split_note(note)
    verified, unverified = [], []
    for line in lines:
        verifier = known.get((line.name, line.key_id))
        if verifier is None:
            unverified.append(line)
            continue
        try:
            verifier.check(text, line.signature)
        except InvalidSignature:
            raise NoteError("the note carries a wrong signature by a known key") from None
        verified.append(verifier)
    if not verified:
        raise NoteError("no known key signed the note: is it another log's, or its key new?")
    return OpenedNote(text, tuple(verified), tuple(unverified))


def open_note(note: str, verifiers: Sequence[NoteVerifier]) -> str:
    """Return the text of a note that at least one of `verifiers` signed.

    Raises NoteError: as `read_note`.
    """
    return read_note(note, verifiers).text


def not_verified(lines: Sequence[SignatureLine]) -> str:
    """Return "; not verified: …" with the first of the lines' names, or "" for no lines.

    The names come from the note: escape them before printing.
    """
    if not lines:
        return ""
    names = list(dict.fromkeys(f"{line.name[:80]}+{line.key_id.hex()}" for line in lines))
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return "; not verified, their keys were not given: " + ", ".join(names[:3]) + rest


def split_note(note: str) -> tuple[str, list[SignatureLine]]:
    """Return the text and each signature line, unverified. Raises NoteError if malformed."""
    if len(note) > MAX_NOTE:
        raise NoteError(f"a note has at most {MAX_NOTE} bytes")
    _require_text(note)
    # The last empty line is the separator: the text may contain empty lines of its own.
    head, separator, tail = note.rpartition("\n\n")
    lines = tail.split("\n")[:-1]
    if not separator or not lines:
        raise NoteError("a note is text, a blank line and signature lines")
    if len(lines) > MAX_SIGNATURES:
        raise NoteError(f"a note has at most {MAX_SIGNATURES} signatures")
    return head + "\n", [_parse_signature(line) for line in lines]


def _parse_signature(line: str) -> SignatureLine:
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
    return SignatureLine(name, data[:KEY_ID_SIZE], data[KEY_ID_SIZE:])


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


def _key_hash(name: str, key: PublicKey, kind: bytes) -> bytes:
    # C2SP signed-note: key ID = SHA-256(key name || 0x0A || type || public key)[:4]
    return sha256(name.encode() + b"\n" + kind + key.public_bytes_raw()).digest()
