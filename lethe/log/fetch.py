"""Reading the files of a log, over HTTP or from a directory."""

import queue
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lethe.errors import LetheError
from lethe.log.note import MAX_NOTE
from lethe.log.tiles import MAX_BUNDLE, parse_tile_path

if TYPE_CHECKING:
    from httpx2 import Response

CHECKPOINT, TRUST_ROOT = "checkpoint", "trust-root"
MAX_TRUST_ROOT = 1 << 20  # bytes; one of a log with ten rotations has about 20,000
TIMEOUT_S = 30.0  # for each connect, read and write; a bundle is at most 17 MB
WHOLE_S = 60.0  # for a file, plus a second for each PACE bytes received
PACE = 16 * 1024
PIECE = 1 << 20  # bytes that are unpacked at a time

Fetch = Callable[[str], bytes]


class LogError(LetheError):
    """A log that differs from what its checkpoint signs; `members["path"]` is the file."""

    slug, title, status = "bad-log", "The log does not verify", 422


class MissingFileError(LogError):
    """The log answers, but does not have the file."""

    slug = "log-file-missing"


class LogForkedError(LogError):
    """The log signed two histories: both checkpoints together prove it."""

    slug = "forked-log"


class LogRewoundError(LogError):
    """The log has fewer entries than a checkpoint that it signed before."""

    slug = "rewound-log"


class LogUnreachableError(LogError):
    """The log could not be read at all, which says nothing about what it holds."""

    slug, title, status = "log-unreachable", "The log cannot be read", 502


def fetch_from(url_or_dir: str | Path) -> Fetch:
    """Return a reader of the log below an http(s) URL prefix or in a directory.

    `checkpoint` is directly below the prefix. The reader takes "checkpoint", "trust-root",
    which a service serves and a mirror does not, or a tile's path, and raises MissingFileError
    or LogUnreachableError (or TileError for other paths). Raises LogUnreachableError: neither
    such a URL nor a directory.
    """
    text = str(url_or_dir)
    if text.startswith(("http://", "https://")):
        return _HttpFetch(text)
    directory = Path(url_or_dir)
    if not directory.is_dir():
        raise LogUnreachableError("a log is an http(s) URL or a directory: this is neither")
    return _DirectoryFetch(directory)


def _limit(path: str) -> int:
    """Return the maximum size of a file in bytes, after checking that it is a log's path."""
    if path == CHECKPOINT:
        return MAX_NOTE
    if path == TRUST_ROOT:
        return MAX_TRUST_ROOT
    parse_tile_path(path)
    return MAX_BUNDLE


def _require_limit(path: str, size: int, limit: int) -> None:
    if size > limit:
        raise LogError(f"{path} is larger than any such file can be", path=path)


class _DirectoryFetch:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, path: str) -> bytes:
        limit = _limit(path)
        try:
            with (self._directory / path).open("rb") as file:
                data = file.read(limit + 1)
        except (FileNotFoundError, NotADirectoryError):
            raise MissingFileError(f"{path} is missing", path=path) from None
        except OSError as error:
            raise LogUnreachableError(f"{path}: {error.strerror}", path=path) from None
        _require_limit(path, len(data), limit)
        return data


class _HttpFetch:
    def __init__(self, url: str) -> None:
        import httpx2  # takes 30 ms, which reading a directory does not need

        from lethe.tls import trusted

        try:
            parts = urlsplit(url)
        except ValueError:
            raise LogUnreachableError("the log's URL is malformed") from None
        if not parts.hostname or parts.query or parts.fragment:
            raise LogUnreachableError("a log's URL is a prefix: without query or fragment")
        self._prefix = url.rstrip("/")
        self._new_client = partial(
            httpx2.Client,
            verify=trusted(),
            timeout=TIMEOUT_S,
            headers={"Accept-Encoding": "gzip, identity"},
        )
        # RuntimeError: the client was closed because a concurrent read took too long.
        self._errors = (httpx2.HTTPError, httpx2.InvalidURL, RuntimeError)
        self._connect()

    def _connect(self) -> None:
        self._client = self._new_client()
        # A Fetch is a plain callable without close(): its connections end with the object.
        self._hang_up = weakref.finalize(self, self._client.close)

    def __call__(self, path: str) -> bytes:
        """Read a file in a thread, which is abandoned if it takes too long.

        A server that sends a byte now and then, even of a header, could keep a read open for
        ever: a monitor would neither continue nor report that the log cannot be read. On a
        time-out the connections are closed, which ends the thread and frees connections for the
        next reads.
        """
        limit = _limit(path)
        begun, data = time.monotonic(), bytearray()
        answer: queue.SimpleQueue[bytes | Exception] = queue.SimpleQueue()

        def read() -> None:
            try:
                answer.put(self._read(path, limit, data))
            except Exception as error:
                answer.put(error)

        threading.Thread(target=read, name="log file", daemon=True).start()
        while (left := begun + WHOLE_S + len(data) / PACE - time.monotonic()) > 0:
            try:
                found = answer.get(timeout=left)
            except queue.Empty:
                continue  # more bytes may have arrived meanwhile
            if isinstance(found, Exception):
                raise found
            return found
        hang_up = self._hang_up
        self._connect()
        hang_up()
        raise LogUnreachableError(f"{path}: the server answers too slowly", path=path)

    def _read(self, path: str, limit: int, data: bytearray) -> bytes:
        """Read a file into `data`. Raises LogError or a subclass."""
        client = self._client
        try:
            with client.stream("GET", f"{self._prefix}/{path}") as response:
                if response.status_code in (404, 410):
                    raise MissingFileError(f"{path} is missing", path=path)
                if response.status_code != 200:
                    raise LogUnreachableError(
                        f"{path}: the server answered {response.status_code}, not 200",
                        path=path,
                    )
                for chunk in _unpacked(response, path):
                    data += chunk
                    _require_limit(path, len(data), limit)
        except self._errors as error:
            raise LogUnreachableError(
                f"{path}: {type(error).__name__}: is the URL right and the server up?",
                path=path,
            ) from None
        return bytes(data)


def _unpacked(response: "Response", path: str) -> Iterator[bytes]:
    """Yield a body as it arrives, at most PIECE bytes at a time if it was compressed.

    A log may compress without being asked, by gzip alone (C2SP tlog-tiles). The library would
    also unpack codings within codings, of which a few kilobytes take hours without a byte to
    count, and keep without counting whatever follows the end of a compressed body.

    Raises LogUnreachableError: compressed otherwise, or not one whole gzip member.
    """
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding == "identity":
        yield from response.iter_raw()
        return
    unpacking = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    refused = LogUnreachableError(f"{path}: the answer is not compressed as gzip", path=path)
    if coding != "gzip":
        raise refused
    try:
        for data in response.iter_raw():
            while part := unpacking.decompress(data, PIECE):
                yield part
                data = unpacking.unconsumed_tail
            if unpacking.unused_data:
                raise refused
    except zlib.error:
        raise refused from None
    if not unpacking.eof:
        raise refused
