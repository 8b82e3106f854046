"""The master key opens the root secret, which seals and tags everything else.

Each model's own secret is sealed under it, and gives the keys for the model's tags, uploads,
noise and audits. A certified removal draws its noise from a key that the log's entry
`model.registered` commits to, before the first row and the first request. So the key cannot be
chosen once the rows to remove are known. The key would allow removing the noise from every
version, so it is never published.
"""

import base64
import binascii
import hashlib
import hmac
import resource
from collections.abc import Collection
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from app.settings import Settings
from app.vault.errors import MasterKeyError, SealError
from app.vault.root import open_root, read_roots
from app.vault.seal import KEY_SIZE, new_key, open_sealed, seal
from lethe.files import write_durably
from models import Model

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

        If this process crashes, it leaves no core dump: that would hold the secret and rows.

        Raises MasterKeyError: as `given`; or root.sealed is missing or damaged, or this key
        does not open it.
        """
        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, most))
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


CERTIFIED_NEWTON, NOISY_FINETUNING = "certified-newton", "noisy-finetuning"
NOISE_DIGEST = "noise"  # its name in the entry `model.registered`
# Tags are HMACs of record ids under the same key. These labels are not UTF-8, unlike any id.
_NOISE = b"\xfflethe certified noise key 1"
_AUDITS = b"\xfflethe audit pair key 1"
_UPLOADS = b"\xfflethe upload key 1"
# workers/judge/certified/logistic_noise.py computes the commitment independently.
_COMMITMENT = b"lethe certified noise key 1\x00"
UPLOAD = "upload"  # its name in the entry of a contribution, or of a registration with rows
ADD_BACK = "addBack"  # digest in the log's entry of a contribution that adds records back


def record_tag(tombstone_key: bytes, record: str) -> bytes:
    """Return the tag that replaces an erased record's id: HMAC-SHA256 under the model's key."""
    return hmac.new(tombstone_key, record.encode(), hashlib.sha256).digest()


def open_tombstone_key(root_secret: RootSecret, model: Model) -> bytes:
    """Unseal the key that tags a model's erased records."""
    return root_secret.open(model.tombstone_key, aad=f"tombstone|{model.ref}".encode())


def tags_digest(tags: Collection[bytes]) -> str:
    """Return the hex SHA-256 of the concatenated tags in ascending order."""
    return hashlib.sha256(b"".join(sorted(tags))).hexdigest()


def upload_tag(root_secret: RootSecret, model: Model, contribution: str, digest: str) -> str:
    """Return an upload's tag in the log: hex HMAC-SHA256 under a key of the model.

    contribution: its id. digest: hex SHA-256 of the upload, which without a key would let
    anyone confirm a guess of the rows.
    """
    key = hmac.digest(open_tombstone_key(root_secret, model), _UPLOADS, "sha256")
    return hmac.digest(key, f"{contribution}|{digest}".encode(), "sha256").hex()


def has_noise(config: dict[str, Any]) -> bool:
    """Return whether a model with this configuration uses noise."""
    settings = config.get("settings", {})
    return NOISY_FINETUNING in settings or bool(settings.get(CERTIFIED_NEWTON, {}).get("sigma"))


def noise_key(root_secret: RootSecret, model: Model) -> bytes:
    """Return a model's noise key: 32 secret bytes."""
    return hmac.new(open_tombstone_key(root_secret, model), _NOISE, hashlib.sha256).digest()


def noise_commitment(root_secret: RootSecret, model: Model) -> dict[str, str]:
    """Return the named digest for the log; empty for a model without noise."""
    if not has_noise(model.config):
        return {}
    return {
        NOISE_DIGEST: hashlib.sha256(_COMMITMENT + noise_key(root_secret, model)).hexdigest()
    }


def audit_mac_key(root_secret: RootSecret, model: Model) -> bytes:
    """Return the key of a model's audits: 32 secret bytes."""
    return hmac.new(open_tombstone_key(root_secret, model), _AUDITS, hashlib.sha256).digest()
