"""The certificate authorities that servers are checked against."""

import os
import ssl
from functools import cache


def trusted() -> ssl.SSLContext:
    """Return the certificate authorities of the system, or of SSL_CERT_FILE or SSL_CERT_DIR.

    Each is read once in a process: reading takes longer than a call. For HTTP only: a client
    changes the protocols that its context offers.
    """
    return _read(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _read(file: str | None, directory: str | None) -> ssl.SSLContext:
    import httpx2  # takes 30 ms, which a command without a server does not need

    return httpx2.create_ssl_context()
