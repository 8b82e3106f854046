"""Heads of requests are bounded while they arrive, and bodies are not taken for heads."""

import asyncio
from typing import Any, cast

import pytest
import uvicorn

from app.api.http.heads import MOST_HEAD, BoundedHeads

PIECE = 4096
START = b"POST /v1 HTTP/1.1\r\nHost: x\r\n"


class Connection(asyncio.Transport):
    """A client's connection: what was answered, and whether it was ended."""

    def __init__(self) -> None:
        super().__init__()
        self.answer, self.closed = b"", False

    def write(self, data: Any) -> None:
        self.answer += bytes(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    read, more = 0, True
    while more:
        message = await receive()
        read, more = read + len(message.get("body", b"")), message.get("more_body", False)
    body = b"%d bytes" % read
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


def _served(*pieces: bytes) -> tuple[Connection, int]:
    """Send pieces until the server hangs up; return the connection and how many it took."""

    async def send() -> int:
        config = uvicorn.Config(cast(Any, _echo), lifespan="off", log_config=None)
        config.load()
        protocol = BoundedHeads(config, uvicorn.server.ServerState(), {})
        protocol.connection_made(connection)
        for taken, piece in enumerate(pieces):
            if connection.closed:
                return taken
            protocol.data_received(piece)
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        return len(pieces)

    connection = Connection()
    return connection, asyncio.run(send())


ENDLESS = {
    "one header": (START + b"X: ", b"a" * PIECE),
    "many headers": (START, b"a:\r\n" * (PIECE // 4)),
    "the target": (b"GET /", b"a" * PIECE),
    "a trailer": (START + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"a" * PIECE),
    "an extension of a chunk": (
        START + b"Transfer-Encoding: chunked\r\n\r\n5;x=",
        b"a" * PIECE,
    ),
}


@pytest.mark.parametrize("endless", ENDLESS)
def test_a_head_without_end_is_refused_while_it_arrives(endless: str) -> None:
    start, piece = ENDLESS[endless]
    connection, taken = _served(start, *[piece] * 100)
    assert taken <= 2 + MOST_HEAD // PIECE
    assert connection.answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_is_no_head(chunked: bool) -> None:
    pieces = 3 * MOST_HEAD // PIECE
    if chunked:
        head, end = b"Transfer-Encoding: chunked\r\n\r\n", [b"0\r\n\r\n"]
        body = [b"%x\r\n%b\r\n" % (PIECE, bytes(PIECE))] * pieces
    else:
        head, end = b"Content-Length: %d\r\n\r\n" % (pieces * PIECE), []
        body = [bytes(PIECE)] * pieces
    connection, _ = _served(START + head, *body, *end)
    assert connection.answer.endswith(b"%d bytes" % (pieces * PIECE))
    assert not connection.closed


def test_each_request_of_a_connection_has_a_head_of_its_own() -> None:
    request = b"GET /v1 HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (MOST_HEAD // 2) + b"\r\n\r\n"
    connection, taken = _served(*[request] * 5)
    assert taken == 5
    assert connection.answer.count(b"0 bytes") == 5
