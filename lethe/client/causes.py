"""Why there was no answer, in words: the library wraps the cause in its own types."""

import socket
import ssl

import httpx2


def cause_of(error: BaseException) -> str:
    """Return the cause of a transport error, without details of the request."""
    seen: BaseException | None = error
    while seen is not None:
        for kind, words in _WORDS:
            if isinstance(seen, kind):
                return words
        seen = seen.__cause__ or seen.__context__
    return type(error).__name__


_WORDS: tuple[tuple[type[BaseException], str], ...] = (
    (httpx2.TimeoutException, "timed out"),
    (ConnectionRefusedError, "connection refused"),
    (socket.gaierror, "the host's name is not known"),
    (ssl.SSLError, "TLS failed"),
)
