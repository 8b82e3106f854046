"""Authenticated encryption: AES-256-GCM (NIST SP 800-38D) with a fresh random nonce.

A sealed blob is nonce (12 bytes) || ciphertext || tag (16 bytes). `aad` states the blob's kind
and place; it is not stored, so a blob moved elsewhere does not open there.

GCM authenticates a blob as a whole, after its last byte. So `OpenedArtifact` reads a file
twice: once to verify it and to keep a digest of each piece, then at any position. GCM is
counter mode (6.5), so a piece can be decrypted alone; it must match the digest from the
verification, which detects a file exchanged in between.
"""

import hashlib
import io
import os
import secrets
from typing import TYPE_CHECKING, BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR, GCM

from app.vault.errors import SealError
from lethe import canonical

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

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


PIECE = 1 << 20  # bytes decrypted and held in memory at once; a multiple of AES's 16
ALTERED = "an artifact is not what was sealed: restore the backup"


class ArtifactFile(io.BufferedReader):
    """The content of a sealed file, buffered. digest: hex SHA-256 of the content."""

    def __init__(self, raw: "OpenedArtifact") -> None:
        super().__init__(raw)
        self.digest = raw.digest


class OpenedArtifact(io.RawIOBase):
    """The content of a sealed file, readable at any position. digest: its hex SHA-256.

    Opening it, and reading after a change, raises SealError if the file was not sealed under
    `key` for `place`, or if its SHA-256 is not `digest`.
    """

    def __init__(self, file: BinaryIO, key: bytes, place: bytes, digest: str) -> None:
        self._file, self._key = file, key
        self.digest = digest
        self._size = file.seek(0, os.SEEK_END) - NONCE_SIZE - TAG_SIZE
        self._digests: list[bytes] = []
        self._at = 0
        self._piece: tuple[int, bytes] = (-1, b"")  # the last piece read
        try:
            self._verify(place, digest)
        except BaseException:
            self.close()
            raise

    def _verify(self, place: bytes, digest: str) -> None:
        if self._size < 0:
            raise SealError(ALTERED)
        self._file.seek(self._size + NONCE_SIZE)
        tag = self._file.read(TAG_SIZE)
        self._file.seek(0)
        self._nonce = self._file.read(NONCE_SIZE)
        decryptor = Cipher(AES(self._key), GCM(self._nonce, tag)).decryptor()
        decryptor.authenticate_additional_data(place)
        whole, left = hashlib.sha256(), self._size
        while left:
            piece = decryptor.update(self._file.read(min(PIECE, left)))
            if not piece:
                raise SealError(ALTERED)
            whole.update(piece)
            self._digests.append(hashlib.sha256(piece).digest())
            left -= len(piece)
        try:
            decryptor.finalize()
        except InvalidTag:
            raise SealError(ALTERED) from None
        if whole.hexdigest() != digest:
            raise SealError(ALTERED)

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position. Raises ValueError if it is before the first byte."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError("there is nothing before the first byte")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Read into `buffer`, at most to the end of a piece. Raises SealError."""
        view = memoryview(buffer).cast("B")
        if self._at >= self._size:
            return 0
        number, start = divmod(self._at, PIECE)
        part = self._decrypted(number)[start : start + len(view)]
        view[: len(part)] = part
        self._at += len(part)
        return len(part)

    def close(self) -> None:
        """Close the file and drop the decrypted piece."""
        self._file.close()
        self._piece = (-1, b"")
        super().close()

    def _decrypted(self, number: int) -> bytes:
        if self._piece[0] != number:
            at = number * PIECE
            self._file.seek(NONCE_SIZE + at)
            sealed = self._file.read(min(PIECE, self._size - at))
            # Counter 1 sealed the tag (SP 800-38D, 7.1).
            counter = self._nonce + (2 + at // 16).to_bytes(4)
            piece = Cipher(AES(self._key), CTR(counter)).decryptor().update(sealed)
            if hashlib.sha256(piece).digest() != self._digests[number]:
                raise SealError(ALTERED)
            self._piece = number, piece
        return self._piece[1]
