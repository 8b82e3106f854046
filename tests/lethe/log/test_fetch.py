"""Reading a log from a directory and over real HTTP, from servers that misbehave too."""

import gzip
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest

from lethe.log import fetch as reading
from lethe.log.fetch import Fetch, LogError, LogUnreachableError, MissingFileError, fetch_from
from lethe.log.follow import mirror_log, verify_log
from lethe.log.note import MAX_NOTE
from lethe.log.tiles import TileError
from lethe.log.watch import watch
from tests.lethe.log import oracle
from tests.lethe.log.logs import VERIFIER, fetch_files, log_files

FILES = log_files(oracle.entries(300))
Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """Serve GET requests by `answer` on a free port; yields the URL prefix."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/log"
        finally:
            server.shutdown()
            thread.join()


def reply(
    handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str
) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def honest(handler: BaseHTTPRequestHandler) -> None:
    body = FILES.get(handler.path.removeprefix("/v1/log/"))
    reply(handler, 404) if body is None else reply(handler, 200, body)


def compressed(handler: BaseHTTPRequestHandler) -> None:
    body = gzip.compress(FILES[handler.path.removeprefix("/v1/log/")])
    reply(handler, 200, body, Content_Encoding="gzip")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    mirror_log(fetch_files(FILES), VERIFIER, tmp_path / "log")
    return tmp_path / "log"


@pytest.mark.parametrize("answer", [honest, compressed])
@pytest.mark.parametrize("slash", ["", "/"])
def test_a_log_over_http_verifies(answer: Answer, slash: str) -> None:
    with serving(answer) as url:
        assert verify_log(fetch_from(url + slash), VERIFIER).size == 300


def test_a_log_in_a_directory_verifies(directory: Path) -> None:
    assert verify_log(fetch_from(directory), VERIFIER).size == 300
    assert verify_log(fetch_from(str(directory)), VERIFIER).size == 300


def test_a_missing_file_is_missing_either_way(directory: Path) -> None:
    with serving(honest) as url:
        for fetch in (fetch_from(url), fetch_from(directory)):
            with pytest.raises(MissingFileError) as caught:
                fetch("tile/0/999")
            assert caught.value.members["path"] == "tile/0/999"


def gone(handler: BaseHTTPRequestHandler) -> None:
    reply(handler, 410)


def test_a_file_that_is_gone_is_missing() -> None:
    with serving(gone) as url, pytest.raises(MissingFileError):
        fetch_from(url)("tile/0/000.p/1")


@pytest.mark.parametrize("path", ["", "../secret", "tile/0/../1/000", "tile/0/0", "notes"])
def test_nothing_but_a_logs_files_is_read(path: str, directory: Path) -> None:
    (directory.parent / "secret").write_bytes(b"secret")
    (directory / "notes").write_bytes(b"secret")
    with serving(honest) as url:
        for fetch in (fetch_from(url), fetch_from(directory)):
            with pytest.raises(TileError):
                fetch(path)


def failing(handler: BaseHTTPRequestHandler) -> None:
    reply(handler, 500)


def refusing(handler: BaseHTTPRequestHandler) -> None:
    reply(handler, 403, FILES["checkpoint"])


def redirecting(handler: BaseHTTPRequestHandler) -> None:
    reply(handler, 302, Location="http://127.0.0.1:1/")


def hanging_up(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"log.example\n")


def not_gzip(handler: BaseHTTPRequestHandler) -> None:
    reply(handler, 200, FILES["checkpoint"], Content_Encoding="gzip")


def not_to_its_end(handler: BaseHTTPRequestHandler) -> None:
    reply(handler, 200, gzip.compress(FILES["checkpoint"])[:-1], Content_Encoding="gzip")


def beyond_its_end(handler: BaseHTTPRequestHandler) -> None:
    body = gzip.compress(FILES["checkpoint"]) + b"x"
    reply(handler, 200, body, Content_Encoding="gzip")


def twice_compressed(handler: BaseHTTPRequestHandler) -> None:
    body = gzip.compress(gzip.compress(FILES["checkpoint"]))
    reply(handler, 200, body, Content_Encoding="gzip, gzip")


def otherwise_compressed(handler: BaseHTTPRequestHandler) -> None:
    body = zlib.compress(FILES["checkpoint"])
    reply(handler, 200, body, Content_Encoding="deflate")


def not_http(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"log.example\n\n")


@pytest.mark.parametrize(
    "answer",
    [
        failing,
        refusing,
        redirecting,
        hanging_up,
        not_gzip,
        not_to_its_end,
        beyond_its_end,
        twice_compressed,
        otherwise_compressed,
        not_http,
    ],
)
def test_a_server_that_fails_gives_no_verdict(answer: Answer) -> None:
    with serving(answer) as url, pytest.raises(LogUnreachableError) as caught:
        verify_log(fetch_from(url), VERIFIER)
    assert caught.value.members["path"] == "checkpoint"


def of_the_head(handler: BaseHTTPRequestHandler) -> None:
    drip(handler, b"HTTP/1.0 200 OK\r\nX-Name: " + bytes(1000))


def of_the_body(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    drip(handler, FILES["checkpoint"])


def drip(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    with suppress(OSError):  # the reader hung up
        for byte in data:
            handler.wfile.write(bytes([byte]))
            time.sleep(0.1)


@pytest.mark.parametrize("answer", [of_the_head, of_the_body])
def test_a_server_that_drips_ends_no_watch_in_silence(
    answer: Answer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(reading, "WHOLE_S", 0.5)
    with serving(answer) as url:
        found, _ = next(watch(fetch_from(url), VERIFIER, tmp_path, every=1, full_every=1))
    assert (found.alarm, found.report) == ("unreachable", None)
    assert found.detail == "checkpoint: the server answers too slowly"


@pytest.mark.parametrize("answer", [of_the_head, of_the_body])
def test_a_server_that_dripped_keeps_no_connection_and_no_thread(
    answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = httpx2.Limits(max_connections=2)  # fewer than the times that it drips
    monkeypatch.setattr(httpx2, "Client", partial(httpx2.Client, limits=few))
    answers = [answer, answer, answer, honest]
    with serving(lambda handler: answers[0](handler)) as url:
        fetch = fetch_from(url)
        while answers[0] is answer:
            monkeypatch.setattr(reading, "WHOLE_S", 0.2)
            with pytest.raises(LogUnreachableError, match="answers too slowly"):
                fetch("checkpoint")
            del answers[0]
        monkeypatch.setattr(reading, "WHOLE_S", 5.0)
        assert fetch("checkpoint") == FILES["checkpoint"]
        for _ in range(50):
            if not [one for one in threading.enumerate() if one.name == "log file"]:
                return
            time.sleep(0.1)
    pytest.fail("a thread reads on")


def test_a_compressed_file_is_unpacked_a_piece_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []

    class Counted:
        def __init__(self, wbits: int) -> None:
            self.whole = decompressobj(wbits=wbits)

        def decompress(self, data: bytes, most: int) -> bytes:
            part = self.whole.decompress(data, most)
            sizes.append(len(part))
            return part

        def __getattr__(self, name: str) -> object:
            return getattr(self.whole, name)

    def large(handler: BaseHTTPRequestHandler) -> None:
        reply(handler, 200, gzip.compress(bytes(100_000)), Content_Encoding="gzip")

    decompressobj = zlib.decompressobj
    monkeypatch.setattr(reading, "PIECE", 1000)
    monkeypatch.setattr(zlib, "decompressobj", Counted)
    with serving(large) as url:
        assert fetch_from(url)("checkpoint") == bytes(100_000)
    assert max(sizes) == 1000


def test_nobody_listening_gives_no_verdict() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # taken and never listened on: a connect is refused
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(LogUnreachableError, match="is the URL right and the server up"):
            fetch_from(url)("checkpoint")


def test_a_file_larger_than_any_is_not_read_to_its_end(directory: Path) -> None:
    (directory / "checkpoint").write_bytes(bytes(MAX_NOTE + 1))

    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(10_000):
                handler.wfile.write(bytes(1 << 16))
        except OSError:
            gave_up.set()  # the reader hung up

    def fetched(fetch: Fetch) -> None:
        with pytest.raises(LogError, match="larger than any such file"):
            fetch("checkpoint")

    gave_up = threading.Event()
    fetched(fetch_from(directory))
    with serving(endless) as url:
        fetched(fetch_from(url))
        assert gave_up.wait(30)


@pytest.mark.parametrize(
    "place",
    [
        "no such directory",
        "ftp://log.example",
        "http://",
        "http://[",
        "http://log.example/?a",
        "https://log.example/#a",
    ],
)
def test_what_is_no_place_of_a_log_is_an_error(place: str) -> None:
    with pytest.raises(LogUnreachableError):
        fetch_from(place)


def test_a_directory_in_place_of_a_file_gives_no_verdict(directory: Path) -> None:
    (directory / "checkpoint").unlink()
    (directory / "checkpoint").mkdir()
    with pytest.raises(LogUnreachableError):
        fetch_from(directory)("checkpoint")
