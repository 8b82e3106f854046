"""The master key: it wraps every data key, and whoever lacks it opens nothing at rest."""

import base64
import binascii
import hmac
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from app.settings import Settings
from app.vault.errors import MasterKeyError, SealError
from app.vault.seal import KEY_SIZE, new_key, open_sealed, seal
from lethe.files import write_durably

FILE = "master.key"


class MasterKey:
    """32 bytes, from LETHE_MASTER_KEY or a file. Never printed, logged or compared."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_SIZE:
            raise MasterKeyError(f"a master key has exactly {KEY_SIZE} bytes")
        self._key = key
        self._names = AESSIV(self.derive("names/mac") + self.derive("names/cipher"))

    @classmethod
    def load(cls, settings: Settings) -> "MasterKey":
        """Return the key that `settings` names: LETHE_MASTER_KEY, or else the file.

        Raises:
            MasterKeyError: Neither is there, or it is not base64 of 32 bytes.
        """
        if text := settings.master_key.get_secret_value():
            return cls.parse(text, "LETHE_MASTER_KEY")
        return cls.read(settings.keys_dir / FILE)

    @classmethod
    def read(cls, path: Path) -> "MasterKey":
        """Return the key in a file that `create` wrote.

        Raises:
            MasterKeyError: There is no such file, or it holds something else.
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
        return cls.parse(text.removesuffix("\n"), str(path))

    @classmethod
    def parse(cls, text: str, source: str) -> "MasterKey":
        """Return the key in `text`; `source` names it in errors.

        Raises:
            MasterKeyError: Not canonical base64 of 32 bytes.
        """
        try:
            key = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_SIZE or base64.b64encode(key).decode() != text:
            raise MasterKeyError(
                f"{source} must be base64 of {KEY_SIZE} random bytes: `openssl rand -base64 32`"
            )
        return cls(key)

    @classmethod
    def create(cls, path: Path) -> "MasterKey":
        """Write a fresh key to `path`, readable by its owner only, and return it.

        Raises:
            FileExistsError: There is one; it is kept.
        """
        key = new_key()
        write_durably(path, base64.b64encode(key) + b"\n", replace=False)
        return cls(key)

    def seal(self, plaintext: bytes, aad: bytes) -> bytes:
        """Seal a data key or another small secret for the place that `aad` names."""
        return seal(self._key, plaintext, aad)

    def derive(self, purpose: str) -> bytes:
        """Return a key of 32 bytes for HMAC under one purpose; it says nothing of this one."""
        return hmac.digest(self._key, b"lethe/derived/v1\0" + purpose.encode(), "sha256")

    def open(self, blob: bytes, aad: bytes) -> bytes:
        """Open what `seal` made.

        Raises:
            SealError: Altered, of another place, or sealed under another master key.
        """
        return open_sealed(self._key, blob, aad)

    def seal_name(self, plaintext: bytes, aad: bytes) -> bytes:
        """Seal an identifier so that equal ones give equal bytes (AES-256-SIV, RFC 5297)."""
        return self._names.encrypt(plaintext, [aad])

    def open_name(self, blob: bytes, aad: bytes) -> bytes:
        """Open what `seal_name` made.

        Raises:
            SealError: Altered, of another place, or sealed under another master key.
        """
        try:
            return self._names.decrypt(blob, [aad])
        except InvalidTag:
            raise SealError(
                "a sealed name was altered, moved, or sealed under another master key: restore "
                "the data directory and the database from the same backup"
            ) from None

    def tag(self, purpose: str, value: str) -> str:
        """Return hex HMAC-SHA256 of `value` under a key of its own for each purpose."""
        return hmac.digest(self.derive(f"tag/{purpose}"), value.encode(), "sha256").hex()
