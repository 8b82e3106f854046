"""A bound on the ZIP archives of others, before `zipfile` reads them."""

from typing import Protocol

CENTRAL_HEADER = b"PK\x01\x02"  # of each entry of a directory, APPNOTE.TXT section 4.3.12
BLOCK = 1 << 20  # bytes


class _Readable(Protocol):
    def seek(self, offset: int, /) -> object: ...

    def read(self, size: int, /) -> bytes: ...


def most_entries(file: _Readable) -> int:
    """Return an upper bound of the entries in a ZIP's directory; packed data may look like one.

    `zipfile` makes an object of about 1,000 bytes of each, which may have 46 in the file.
    """
    file.seek(0)
    found, before = 0, b""
    while part := file.read(BLOCK):
        found += (before + part).count(CENTRAL_HEADER)
        before = part[-len(CENTRAL_HEADER) + 1 :]
    return found
