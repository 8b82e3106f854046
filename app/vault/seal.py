"""Authenticated encryption: AES-256-GCM (NIST SP 800-38D) with a fresh random nonce.

A sealed blob is nonce (12 bytes) || ciphertext || tag (16 bytes). `aad` states the blob's kind
and place; it is not stored, so a blob moved elsewhere does not open there.
"""

import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM

from app.vault.errors import SealError
from lethe import canonical

KEY_SIZE = 32  # bytes
NONCE_SIZE = 12  # bytes; random: a key must not seal more than 2**32 blobs (SP 800-38D 8.3)
TAG_SIZE = 16  # bytes


def new_key() -> bytes:
    """Return a new random key."""
    return secrets.token_bytes(KEY_SIZE)


def context(purpose: str, *ids: str | int) -> bytes:
    """Return the associated data of a blob; different arguments give different bytes."""
    return canonical.encode(["lethe-vault-1", purpose, *ids])


def seal(key: bytes, plaintext: bytes, aad: bytes) -> bytes:
    """Return `plaintext` sealed under `key` (32 bytes) for the place that `aad` names."""
    nonce = secrets.token_bytes(NONCE_SIZE)
    return nonce + AESGCM(_checked(key)).encrypt(nonce, plaintext, aad)


def open_sealed(key: bytes, blob: bytes, aad: bytes) -> bytes:
    """Return the plaintext that `seal` sealed under the same key for the same place.

    Raises SealError: the blob was altered or truncated, or belongs to another key or place.
    """
    try:
        if len(blob) < NONCE_SIZE + TAG_SIZE:
            raise InvalidTag
        return AESGCM(_checked(key)).decrypt(blob[:NONCE_SIZE], blob[NONCE_SIZE:], aad)
    except InvalidTag:
        raise SealError(
            "sealed data was altered, moved, or sealed under another master key: restore the "
            "data directory and the database from the same backup"
        ) from None


class SealStream:
    """Seals in pieces: `head` and the results of `update` and `finish` form one blob."""

    def __init__(self, key: bytes, aad: bytes) -> None:
        self.head = secrets.token_bytes(NONCE_SIZE)
        self._encryptor = Cipher(AES(_checked(key)), GCM(self.head)).encryptor()
        self._encryptor.authenticate_additional_data(aad)

    def update(self, plaintext: bytes) -> bytes:
        """Return the ciphertext of the next piece."""
        return self._encryptor.update(plaintext)

    def finish(self) -> bytes:
        """Return the end of the blob."""
        return self._encryptor.finalize() + self._encryptor.tag


def _checked(key: bytes) -> bytes:
    assert len(key) == KEY_SIZE, "AES-256 only: AESGCM would take shorter keys too"
    return key
