"""A buffer for an arriving body: on disk beyond a mebibyte, and only encrypted.

Rows of people's data must neither fill the memory nor be written unsealed. The file has no
name, and its key is only in this process: after a crash, nobody can decrypt what is left.
"""

import os
import tempfile
from pathlib import Path
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.vault.seal import NONCE_SIZE, TAG_SIZE, new_key

CHUNK = 1 << 20  # bytes sealed together, and most bytes in memory


class SpoolError(Exception):
    """The disk failed or is full. Not an OSError: `zipfile` raises that for malformed input."""


class Spool:
    """Bytes that are written once, sequentially, and then read at any position.

    folder: for the file; it should be the data directory, whose disk space is monitored.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = AESGCM(new_key())
        self._file: BinaryIO | None = None
        self._sealed = 0  # chunks in the file
        self._tail = bytearray()  # bytes that are not in the file yet
        self._at = 0
        self._open: tuple[int, bytes] = (-1, b"")  # the last chunk read

    @property
    def size(self) -> int:
        """How many bytes were written."""
        return self._sealed * CHUNK + len(self._tail)

    def fits(self, data: bytes) -> bool:
        """Return whether `data` can be written without waiting for the disk."""
        return len(self._tail) + len(data) <= CHUNK

    def write(self, data: bytes) -> int:
        """Append `data`. Raises SpoolError."""
        self._tail += data
        while len(self._tail) > CHUNK:
            sealed = self._key.encrypt(_nonce(self._sealed), bytes(self._tail[:CHUNK]), None)
            try:
                if self._file is None:
                    self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                    self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
                self._file.write(sealed)
            except OSError as error:
                raise SpoolError from error
            self._sealed += 1
            del self._tail[:CHUNK]
        return len(data)

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return where the next byte is read."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the reading position. Raises ValueError for one before the first byte."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError("there is nothing before the first byte")
        self._at = base + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Return `size` bytes, or all that follow; fewer at the end. Raises SpoolError."""
        wanted = max(0, self.size - self._at)
        if size is not None and size >= 0:
            wanted = min(size, wanted)
        parts = []
        while wanted:
            number, start = divmod(self._at, CHUNK)
            part = self._chunk(number)[start : start + wanted]
            parts.append(part)
            self._at += len(part)
            wanted -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Discard the bytes."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._sealed, self._open = 0, (-1, b"")
        self._tail.clear()

    def _chunk(self, number: int) -> bytes:
        if number >= self._sealed:
            return bytes(self._tail) if number == self._sealed else b""
        if self._open[0] != number:
            assert self._file is not None
            try:
                self._file.seek(number * (CHUNK + TAG_SIZE))
                sealed = self._file.read(CHUNK + TAG_SIZE)
                self._open = number, self._key.decrypt(_nonce(number), sealed, None)
            except (OSError, InvalidTag) as error:
                raise SpoolError from error
        return self._open[1]


def _nonce(number: int) -> bytes:
    # Each chunk is sealed once under this key.
    return number.to_bytes(NONCE_SIZE)
