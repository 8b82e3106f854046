"""A server that lies to members of a round: it stands before the API and changes answers."""

import http.client
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

# The keyid of the caller and the round as the service shows it, to be changed in place.
Lie = Callable[[str, dict[str, Any]], None]


@contextmanager
def lying(base_url: str, lie: Lie) -> Iterator[str]:
    """Yield the address of a proxy before `base_url` that lies about the work of a round."""
    api = urlsplit(base_url).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._forward()

        def do_PUT(self) -> None:
            self._forward()

        def do_POST(self) -> None:
            self._forward()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            connection = http.client.HTTPConnection(api, timeout=60)
            # Host too: what the member signed names the address that it called.
            connection.putrequest(self.command, self.path, skip_host=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            data = answer.read()
            if self.path.endswith("/work") and answer.status == 200:
                shown = json.loads(data)
                keyid = re.search(r'keyid="([^"]*)"', self.headers["Signature-Input"])
                assert keyid is not None
                lie(keyid[1], shown)
                data = json.dumps(shown).encode()
            connection.close()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers["Content-Type"])
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
