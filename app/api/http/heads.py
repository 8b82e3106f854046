"""Bounds the bytes of a request that are not its body, before they are in memory.

The server's parser has no bound. It joins the pieces of a long header again and again, in time
quadratic in its length, and four bytes of a short one become a hundred. Both happen on the
event loop, before anybody is authenticated.
"""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD = 65_536  # bytes, as in uvicorn's other parser; a signed request's have about 1,000


class BoundedHeads(HttpToolsProtocol):
    """A connection that is ended when a head, or what follows a body, is longer than that."""

    _beside = 0  # bytes since the connection, message or piece of a body before

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, at most 256 KiB. Answer 400 and hang up if it is too long."""
        self._beside += len(data)
        super().data_received(data)
        if self._beside > MOST_HEAD and not self.transport.is_closing():
            self.send_400_response(f"Send a head of at most {MOST_HEAD} bytes.")

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body: what it may hold is limited elsewhere (`limits`)."""
        self._beside = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a message; the next one has a head of its own."""
        self._beside = 0
        super().on_message_complete()
