"""The master key opens the root secret, which seals and tags everything else."""

import base64
import binascii
import hmac
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from app.settings import Settings
from app.vault.errors import MasterKeyError, SealError
from app.vault.root import open_root, read_roots
from app.vault.seal import KEY_SIZE, new_key, open_sealed, seal
from lethe.files import write_durably

FILE = "master.key"
NEXT_FILE = "master.next.key"  # of a rotation


class RootSecret:
    """The opened root secret: it seals, tags and derives other keys.

    root: the secret's 32 bytes. Never printed, logged or compared.
    """

    def __init__(self, root: bytes) -> None:
        if len(root) != KEY_SIZE:
            raise MasterKeyError(f"a root secret has exactly {KEY_SIZE} bytes")
        self._key = root
        self._names = AESSIV(self.derive("names/mac") + self.derive("names/cipher"))

    @classmethod
    def load(cls, settings: Settings) -> "RootSecret":
        """Open the root secret with the key that `settings` names.

        Raises MasterKeyError: as `given`; or root.sealed is missing or damaged, or this key
        does not open it.
        """
        try:
            roots = read_roots(settings.keys_dir)  # first, as a rotation replaces the key first
        except MasterKeyError:
            given(settings)  # if both are missing, the error names the key
            raise
        if (opened := open_root(given(settings), roots)) is None:
            raise MasterKeyError(
                f"{source(settings)} is not a master key that opens root.sealed: set the one "
                "that was in use when this keys directory was last written; after a rotation, "
                "the new one"
            )
        return cls(opened[1])

    def seal(self, plaintext: bytes, aad: bytes) -> bytes:
        """Seal a data key or another small secret for the place that `aad` names."""
        return seal(self._key, plaintext, aad)

    def derive(self, purpose: str) -> bytes:
        """Return a 32-byte HMAC key for one purpose; it reveals nothing about the secret."""
        return hmac.digest(self._key, b"lethe/derived/v1\0" + purpose.encode(), "sha256")

    def open(self, blob: bytes, aad: bytes) -> bytes:
        """Open a blob of `seal`.

        Raises SealError: altered, moved, or sealed under another root secret.
        """
        return open_sealed(self._key, blob, aad)

    def seal_name(self, plaintext: bytes, aad: bytes) -> bytes:
        """Seal an identifier deterministically (AES-256-SIV, RFC 5297)."""
        return self._names.encrypt(plaintext, [aad])

    def open_name(self, blob: bytes, aad: bytes) -> bytes:
        """Open a blob of `seal_name`.

        Raises SealError: altered, moved, or sealed under another root secret.
        """
        try:
            return self._names.decrypt(blob, [aad])
        except InvalidTag:
            raise SealError(
                "a sealed name was altered, moved, or sealed under another root secret: "
                "restore the data directory and the database from the same backup"
            ) from None

    def tag(self, purpose: str, value: str) -> str:
        """Return hex HMAC-SHA256 of `value` under the purpose's own key."""
        return hmac.digest(self.derive(f"tag/{purpose}"), value.encode(), "sha256").hex()


def source(settings: Settings) -> str:
    """Return the name of the variable or file with the master key."""
    if settings.master_key.get_secret_value():
        return "LETHE_MASTER_KEY"
    return str(settings.keys_dir / FILE)


def given(settings: Settings) -> bytes:
    """Return the configured master key: LETHE_MASTER_KEY, or else the file.

    Raises MasterKeyError: neither is set, or the key is not base64 of 32 bytes.
    """
    if text := settings.master_key.get_secret_value():
        return parse_key(text, "LETHE_MASTER_KEY")
    return read_key(settings.keys_dir / FILE)


def read_key(path: Path) -> bytes:
    """Return the key in a file that `create_key` wrote.

    Raises MasterKeyError: there is no such file, or its content is malformed.
    """
    try:
        text = path.read_text(encoding="ascii")
    except FileNotFoundError:
        raise MasterKeyError(
            f"{path} is missing: restore the keys directory, set LETHE_MASTER_KEY, or, for "
            "a new installation, run `lethe log init`"
        ) from None
    except UnicodeDecodeError:
        text = ""
    return parse_key(text.removesuffix("\n"), str(path))


def parse_key(text: str, named: str) -> bytes:
    """Return the key in `text`; errors call it `named`.

    Raises MasterKeyError: not canonical base64 of 32 bytes.
    """
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_SIZE or base64.b64encode(key).decode() != text:
        raise MasterKeyError(
            f"{named} must be base64 of {KEY_SIZE} random bytes: `openssl rand -base64 32`"
        )
    return key


def create_key(path: Path) -> bytes:
    """Write a new key to `path`, readable by its owner only, and return it.

    Raises FileExistsError: the file exists, and is kept.
    """
    key = new_key()
    write_durably(path, base64.b64encode(key) + b"\n", replace=False)
    return key
