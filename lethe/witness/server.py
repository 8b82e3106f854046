"""A witness over HTTP (C2SP tlog-witness), from the standard library.

POST /add-checkpoint            cosignature lines, or the status of the refusal
GET /<origin hash>/checkpoint   the last cosigned checkpoint
"""

import logging
import re
import threading
from collections import OrderedDict
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR, SHUT_WR, socket
from typing import Any

from lethe.errors import LetheError
from lethe.witness.protocol import MAX_BODY, PATH, SIZE_TYPE, format_size
from lethe.witness.witness import OldSizeError, Witness

log = logging.getLogger(__name__)

IDLE_S = 10.0  # maximum wait for bytes of a request
LINGER_S = 1.0  # maximum wait for the next bytes of a discarded body
CONNECTION_S = 60.0  # maximum duration of a connection
MOST_CONNECTIONS = 64
HANDOVER_S = 1.0  # maximum wait for a connection that was hung up on to end
TEXT = "text/plain; charset=utf-8"
_CHECKPOINT = re.compile(r"/([0-9a-f]{64})/checkpoint")


class Server(ThreadingHTTPServer):
    """Listens at once; `serve_forever` answers. Client addresses are never logged.

    At most MOST_CONNECTIONS threads answer. Where all are taken, a new connection gets the
    place of the oldest: a stranger who opens many and sends nothing would otherwise keep the
    log out, and with a shorter IDLE_S would only open them again. The log sends its request at
    once, while its connection is among the newest. Connections are not counted by address,
    since behind a proxy all clients share one.
    """

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, address: tuple[str, int], witness: Witness) -> None:
        self.witness = witness
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._open: OrderedDict[socket, None] = OrderedDict()  # oldest first
        super().__init__(address, Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a new thread, or hang up if there is no room for it."""
        if not self._make_room():
            self.shutdown_request(request)
            return
        self._open[request] = None
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread left
            self._leave(request)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one connection, and end it after CONNECTION_S."""
        ender = threading.Timer(CONNECTION_S, _hang_up, [request])
        ender.daemon = True
        ender.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            ender.cancel()
            self._leave(request)

    def _make_room(self) -> bool:
        """Take a place for a thread; return whether there was one in time."""
        if self._free.acquire(blocking=False):
            return True
        with suppress(KeyError):  # all were hung up on already
            _hang_up(self._open.popitem(last=False)[0])
        # The thread notices as soon as it reads or writes, but not while a disk is slow.
        return self._free.acquire(timeout=HANDOVER_S)

    def _leave(self, request: socket) -> None:
        self._open.pop(request, None)
        self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error by name, without its text, which may hold received data."""
        log.warning("a connection of the witness ended with an error")


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    timeout = IDLE_S
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "lethe-witness", ""

    def do_POST(self) -> None:
        """Cosign a checkpoint."""
        if self.path != f"/{PATH}":
            self._refuse_unread(404, b"the one path to post to is /add-checkpoint\n")
            return
        length = self.headers.get("content-length", "")
        if "transfer-encoding" in self.headers or not re.fullmatch("[0-9]{1,9}", length):
            self._refuse_unread(411, b"a Content-Length is required\n")
            return
        if int(length) > MAX_BODY:
            self._refuse_unread(413, b"the body is larger than any such request\n")
            return
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self.close_connection = True
            return
        try:
            lines = self.server.witness.add_checkpoint(body)
        except OldSizeError as error:
            self._answer(error.status, format_size(error.size), SIZE_TYPE)
        except LetheError as error:
            self._answer(error.status, f"{error.detail}\n".encode())
        except OSError as error:
            log.error("the witness cannot write: %s", error.strerror)
            self._answer(503, b"the witness cannot remember the checkpoint\n")
        else:
            self._answer(200, lines.encode())

    def do_GET(self) -> None:
        """Serve the last cosigned checkpoint of a log."""
        found = _CHECKPOINT.fullmatch(self.path)
        note = self.server.witness.heads.note(found[1]) if found else None
        if note is None:
            self._answer(404, b"no checkpoint was cosigned for this log\n")
        else:
            self._answer(200, note)

    def _refuse_unread(self, status: int, body: bytes) -> None:
        """Answer without reading the body of the request, and end the connection.

        `Connection: close` keeps the client from sending its next request into it. The rest of
        the body is still drained, because a socket closed with unread bytes is reset, which may
        cost the client the answer (RFC 9112, section 9.6).
        """
        self.close_connection = True
        self._answer(status, body)
        with suppress(OSError):  # the client is silent or gone
            self.connection.shutdown(SHUT_WR)
            self.connection.settimeout(LINGER_S)
            while self.rfile.read1():
                pass

    def _answer(self, status: int, body: bytes, kind: str = TEXT) -> None:
        self.send_response(HTTPStatus(status))
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the line would contain the client's address."""


def _hang_up(connection: socket) -> None:
    try:
        connection.shutdown(SHUT_RDWR)
    except OSError:
        return  # already closed
