"""A receiver of webhooks: a real HTTP server on this machine."""

import ssl
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """Answers what `answers` says, else 204, and keeps what it was sent."""

    url: str = ""
    seen: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    answers: deque[tuple[int, dict[str, str]]] = field(default_factory=deque)

    def answer(self, status: int, **headers: str) -> None:
        self.answers.append((status, {k.replace("_", "-"): v for k, v in headers.items()}))


@contextmanager
def receiving(context: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.seen.append(({k.lower(): v for k, v in self.headers.items()}, body))
            status, headers = receiver.answers.popleft() if receiver.answers else (204, {})
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    scheme, host = ("http", "127.0.0.1") if context is None else ("https", "localhost")
    receiver.url = f"{scheme}://{host}:{server.server_address[1]}/hook?of=lethe"
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
