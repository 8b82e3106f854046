"""`lethe certificate get`: a file from a service, as it came, or a named error."""

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from lethe.certificates.bundle import MAX_BUNDLE
from lethe.cli.certificate import DownloadError
from lethe.client.errors import AnswerError
from tests.lethe.certificates.build import CERTIFICATE_ID, Certified, Office
from tests.lethe.cli.certificates import run


class Service(ThreadingHTTPServer):
    """Answers every GET with one prepared response and remembers what was asked."""

    answer: tuple[int, bytes] = (200, b"")
    coding = ""
    asked: list[tuple[str, str]]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Service)
        self.server.asked.append((self.path, self.headers["Accept"]))
        status, body = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if self.server.coding:
            self.send_header("Content-Encoding", self.server.coding)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(("127.0.0.1", 0), Handler) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


REQUEST_ID = "c0ffee00-0d1e-4a2b-9c3d-4e5f60718293"


def get(service: Service, *options: object) -> Result:
    url = f"http://127.0.0.1:{service.server_port}/"
    return run("get", REQUEST_ID, "--url", url, *options)


def test_get_writes_the_file_as_it_came(
    service: Service, certified: Certified, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    service.answer = (200, certified.bundle)
    result = get(service)
    assert result.exit_code == 0
    name = f"{CERTIFICATE_ID}.sigstore.json"
    assert result.output == f"{name}\n"
    # The request's id opens the request: whoever is shown the certificate must not get it.
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == certified.bundle
    path, accept = service.asked[0]
    assert path == f"/v1/requests/{REQUEST_ID}/certificate"
    assert accept.startswith("application/vnd.dev.sigstore.bundle.v0.3+json")


def test_get_replaces_no_other_certificate_of_this_id(
    service: Service, certified: Certified, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service names the file, so it could replace what convicts it."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"{CERTIFICATE_ID}.sigstore.json"
    path.write_bytes(b"an earlier one")
    service.answer = (200, certified.bundle)
    result = get(service)
    assert isinstance(result.exception, DownloadError)
    assert "has other bytes" in result.exception.detail
    assert path.read_bytes() == b"an earlier one"
    assert get(service, "--out", path).exit_code == 0
    assert get(service).exit_code == 0
    assert path.read_bytes() == certified.bundle


PROBLEM = json.dumps({"title": "Not found", "detail": "no such request\x1b[2J"}).encode()
REFUSED: dict[str, tuple[int, bytes, str]] = {
    "404 with a problem": (404, PROBLEM, "answered 404: Not found: no such request\ufffd"),
    "500 without one": (500, b"oops", "answered 500"),
    "a list": (500, b"[]", "answered 500"),
    "not a certificate": (200, b"{}", "not a certificate"),
    "a bundle of something else": (200, Office().seal(b"{}"), "not a certificate"),
    "too large": (200, b" " * (MAX_BUNDLE + 1), "too large"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_another_answer_is_an_error_and_writes_nothing(
    service: Service, tmp_path: Path, name: str
) -> None:
    status, body, message = REFUSED[name]
    service.answer = (status, body)
    out = tmp_path / "out.json"
    result = get(service, "--out", out)
    assert isinstance(result.exception, DownloadError)
    assert message in result.exception.detail
    assert "\x1b" not in result.exception.detail
    assert not out.exists()


def test_a_compressed_answer_is_refused_unread(
    service: Service, certified: Certified, tmp_path: Path
) -> None:
    packed = gzip.compress(gzip.compress(certified.bundle))
    service.answer, service.coding = (200, packed), "gzip, gzip"
    result = get(service, "--out", tmp_path / "out.json")
    assert isinstance(result.exception, AnswerError)
    assert "compressed" in result.exception.detail
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "nonsense", "http://[", "ftp://x"])
def test_a_service_that_cannot_be_reached_is_an_error(url: str) -> None:
    result = run("get", REQUEST_ID, "--url", url)
    assert isinstance(result.exception, DownloadError)
    assert "cannot be reached" in result.exception.detail


def test_the_service_may_be_named_by_the_environment(
    service: Service, certified: Certified, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LETHE_URL", f"http://127.0.0.1:{service.server_port}")
    service.answer = (200, certified.bundle)
    assert run("get", CERTIFICATE_ID, "--out", tmp_path / "x.json").exit_code == 0
    assert len(service.asked) == 1


def test_an_id_that_is_none_is_refused_before_any_call(service: Service) -> None:
    url = f"http://127.0.0.1:{service.server_port}"
    assert run("get", "../keys", "--url", url).exit_code == 2
    assert service.asked == []


def test_a_place_that_cannot_be_written_exits_2(
    service: Service, certified: Certified, tmp_path: Path
) -> None:
    service.answer = (200, certified.bundle)
    result = get(service, "--out", tmp_path / "missing" / "x.json")
    assert result.exit_code == 2
    assert "cannot write" in result.output
