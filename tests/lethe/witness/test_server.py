"""The witness over HTTP: statuses of the specification, and bounds."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from lethe.witness import server
from lethe.witness.heads import Heads, origin_hash
from lethe.witness.protocol import MAX_BODY, SIZE_TYPE
from tests.lethe.certificates.build import log_signer
from tests.lethe.witness.logs import Log, serving, witness_in

LOG, FORK = Log(20), Log(20, "other ")
PLACE = f"/{origin_hash(LOG.signer.name)}/checkpoint"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx2.Client]:
    witness_in(tmp_path / "w", LOG)
    with serving(tmp_path / "w") as url, httpx2.Client(base_url=url) as made:
        yield made


def test_statuses_of_the_specification(client: httpx2.Client) -> None:
    def post(body: bytes) -> httpx2.Response:
        return client.post("/add-checkpoint", content=body)

    assert client.get(PLACE).status_code == 404
    assert post(LOG.request(0, 5)).status_code == 200
    conflict = post(LOG.request(0, 20))
    assert (conflict.status_code, conflict.content) == (409, b"5\n")
    assert conflict.headers["content-type"] == SIZE_TYPE
    assert post(FORK.request(5, 20)).status_code == 422
    assert post(b"old\n").status_code == 400
    assert post(Log(5, signer=log_signer("x.example")).request(0, 5)).status_code == 404
    forger = Log(5, signer=log_signer(LOG.signer.name, b"forger"))
    assert post(forger.request(0, 5)).status_code == 403
    cosigned = post(LOG.request(5, 20))
    assert cosigned.status_code == 200
    assert client.get(PLACE).content == LOG.note(20).encode() + cosigned.content


def test_other_calls_and_other_paths(client: httpx2.Client) -> None:
    assert client.post("/other", content=b"x").status_code == 404
    assert client.get("/").status_code == 404
    assert client.get(PLACE.upper()).status_code == 404
    assert client.put("/add-checkpoint", content=b"x").status_code == 501
    chunked = client.post("/add-checkpoint", content=iter([b"x"]))
    assert chunked.status_code == 411
    address = (client.base_url.host, client.base_url.port)
    with socket.create_connection(address, timeout=10) as huge:
        length = f"content-length: {MAX_BODY + 1}"
        huge.sendall(f"POST /add-checkpoint HTTP/1.1\r\n{length}\r\n\r\n".encode())
        assert huge.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_refused_body_ends_the_connection_and_the_client_knows(client: httpx2.Client) -> None:
    for path, body in (("/other", b"x"), ("/add-checkpoint", iter([b"x"]))):
        assert client.post(path, content=body).headers["connection"] == "close"
    assert "connection" not in client.get(PLACE).headers


def test_a_body_that_comes_after_its_refusal_does_not_cost_the_answer(
    client: httpx2.Client,
) -> None:
    address = (client.base_url.host, client.base_url.port)
    with socket.create_connection(address, timeout=10) as late:
        late.sendall(b"POST /other HTTP/1.1\r\ncontent-length: 200000\r\n\r\n")
        late.recv(1, socket.MSG_PEEK)  # it has answered
        for _ in range(20):
            late.sendall(b"x" * 10_000)
        assert late.recv(100).startswith(b"HTTP/1.1 404 ")


def test_two_ways_to_measure_a_body_are_refused(client: httpx2.Client) -> None:
    both = {"content-length": "3", "transfer-encoding": "chunked"}
    answer = client.post("/add-checkpoint", content=iter([b"old"]), headers=both)
    assert answer.status_code == 411


def test_a_full_disk_is_said(client: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Heads, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    assert client.post("/add-checkpoint", content=LOG.request(0, 5)).status_code == 503


def test_a_body_that_is_cut_short_and_a_silent_client_hold_nothing(
    client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CONNECTION_S", 0.05)
    address = (client.base_url.host, client.base_url.port)
    with socket.create_connection(address, timeout=10) as silent:
        assert silent.recv(1) == b""  # hung up
    with socket.create_connection(address, timeout=10) as cut:
        cut.sendall(b"POST /add-checkpoint HTTP/1.1\r\ncontent-length: 10\r\n\r\nold")
        assert cut.recv(1) == b""
    assert client.get(PLACE).status_code == 404


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """The address of a witness with room for three connections, which never time out."""
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr(server.Handler, "timeout", 600.0)
    witness_in(tmp_path / "w", LOG)
    with serving(tmp_path / "w") as url:
        parts = httpx2.URL(url)
        assert parts.port is not None
        yield parts.host, parts.port


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\n",
        b"POST /add-checkpoint HTTP/1.1\r\ncontent-length: 9\r\n\r\nold",
    ],
    ids=["nothing", "half a head", "half a body"],
)
def test_a_stranger_who_takes_all_connections_does_not_keep_the_log_out(
    small: tuple[str, int], sent: bytes
) -> None:
    with ExitStack() as ends:
        strangers = [
            ends.enter_context(socket.create_connection(small, timeout=10)) for _ in range(3)
        ]
        for one in strangers:
            one.sendall(sent)
        url = f"http://{small[0]}:{small[1]}/add-checkpoint"
        assert httpx2.post(url, content=LOG.request(0, 5)).status_code == 200
        # The oldest made room, and no other.
        assert strangers[0].recv(1) == b""
        assert [is_open(one) for one in strangers[1:]] == [True, True]


def test_no_more_than_so_many_connections_at_once(
    small: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[int] = []
    begun = threading.Semaphore(0)
    handle = server.Handler.handle

    def counted(self: server.Handler) -> None:
        running.append(self)
        handled.append(len(running))
        begun.release()
        try:
            handle(self)
        finally:
            running.remove(self)

    running: list[server.Handler] = []
    monkeypatch.setattr(server.Handler, "handle", counted)
    with ExitStack() as ends:
        for _ in range(20):
            last = ends.enter_context(socket.create_connection(small, timeout=10))
        last.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert last.recv(100).startswith(b"HTTP/1.1 404 ")
        for _ in range(20):  # the last may be answered before another's thread began
            assert begun.acquire(timeout=10)
    assert (len(handled), max(handled)) == (20, 3)


def test_a_connection_that_does_not_end_is_not_waited_for_without_end(
    small: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that wait for a disk do not notice that they were hung up on."""
    monkeypatch.setattr(server, "HANDOVER_S", 0.01)
    disk, stuck = threading.Event(), threading.Semaphore(0)

    def wait(*_: object) -> None:
        stuck.release()
        disk.wait()

    monkeypatch.setattr(server.Handler, "handle", wait)
    with ExitStack() as ends:
        ends.callback(disk.set)
        for _ in range(3):
            ends.enter_context(socket.create_connection(small, timeout=10))
            stuck.acquire()
        fourth = ends.enter_context(socket.create_connection(small, timeout=10))
        assert fourth.recv(1) == b""
