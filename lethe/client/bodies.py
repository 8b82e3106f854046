"""Bodies sent piece by piece: a form around a file is never in memory as a whole."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2

from lethe.client.errors import ChangedFileError

PIECE = 2**18  # bytes of a body between two progress reports


@dataclass(frozen=True, slots=True)
class Form:
    """A multipart form whose last part is data: bytes, or a file of known size.

    A file is read anew for each try, so it must not change until the service has answered.
    """

    head: bytes
    data: bytes | Path
    size: int
    tail: bytes

    @classmethod
    def around(cls, request: httpx2.Request, data: bytes | Path) -> "Form":
        """Return the form of a request whose last part is empty, with `data` in it.

        Raises OSError: the file cannot be read.
        """
        head, boundary, end = request.read().rpartition(b"\r\n--")
        size = len(data) if isinstance(data, bytes) else data.stat().st_size
        return cls(head, data, size, boundary + end)

    def __len__(self) -> int:
        return len(self.head) + self.size + len(self.tail)

    def pieces(self) -> Iterator[bytes]:
        """Yield the form.

        Raises:
            OSError: The file cannot be read.
            ChangedFileError: Its length has changed.
        """
        yield self.head
        if isinstance(self.data, bytes):
            yield from _cut(self.data)
        else:
            yield from self._read(self.data)
        yield self.tail

    def _read(self, path: Path) -> Iterator[bytes]:
        left = self.size
        with path.open("rb") as file:
            while piece := file.read(min(PIECE, left + 1)):
                left -= len(piece)
                if left < 0:
                    break
                yield piece
        if left:
            raise ChangedFileError(f"{path.name} changed while it was sent: send it again")


def _cut(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), PIECE):
        yield body[start : start + PIECE]


class Sent(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """The body of a request.

    After each piece, on_sent is called with (bytes sent, all bytes).
    """

    def __init__(
        self, body: bytes | Form, on_sent: Callable[[int, int], object] | None
    ) -> None:
        self._body, self._on_sent = body, on_sent

    def __iter__(self) -> Iterator[bytes]:
        done = 0
        body = self._body
        for piece in body.pieces() if isinstance(body, Form) else _cut(body):
            yield piece
            done += len(piece)
            if self._on_sent is not None:
                self._on_sent(done, len(body))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:  # reading a piece blocks the loop for a tenth of a millisecond
            yield piece
