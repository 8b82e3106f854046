"""The certificate authorities that servers are checked against."""

import os
import ssl
from functools import lru_cache


def trusted() -> ssl.SSLContext:
    """Return the certificate authorities of the system, or of SSL_CERT_FILE or SSL_CERT_DIR.

    They are read again only when they have changed: reading takes longer than a call. For HTTP
    only: a client changes which protocols its context offers.
    """
    paths = ssl.get_default_verify_paths()  # which looks at the environment too
    return _read(
        os.environ.get("SSL_CERT_FILE"),
        os.environ.get("SSL_CERT_DIR"),
        _changed(paths.cafile),
        _changed(paths.capath),
    )


def _changed(path: str | None) -> int:
    return 0 if path is None else os.stat(path).st_mtime_ns


# The last two are there to tell contents apart, of which few are wanted at a time.
@lru_cache(maxsize=4)
def _read(file: str | None, directory: str | None, *_: int) -> ssl.SSLContext:
    import httpx2  # takes 30 ms, which a command without a server does not need

    return httpx2.create_ssl_context()
