"""Which URLs of a database, of a broker and of the service itself are accepted."""

import re
from urllib.parse import urlsplit

ENCODED = "write / # ? @ of the password as %2F %23 %3F %40"
DRIVERS = ("sqlite", "sqlite+pysqlite", "postgresql", "postgresql+psycopg")
BROKERS = ("redis", "rediss", "redis+socket")  # those whose messages `app.broker` checks
# Signatures cover it, so it has the one spelling that clients send.
PUBLIC_URL = re.compile(
    r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?(/[^\s?#]*)?", re.ASCII
)


def checked_database_url(given: str) -> str:
    """Return the URL of a database that Lethe works on. Raises ValueError for any other."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(given)
    except (ArgumentError, ValueError):  # its text may repeat a part of the password
        url = None
    if url is None or url.drivername not in DRIVERS:
        raise ValueError("must be sqlite:///FILE or postgresql://USER@HOST/DATABASE")
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise ValueError("SQLite must be a file: a database in memory ends with its process")
    return given


def checked_broker_url(given: str) -> str:
    """Return the URL of a broker that Lethe sends through. Raises ValueError for any other."""
    if given == "filesystem://":
        return given
    try:
        url = urlsplit(given)
        usable = given.partition("://")[0] in BROKERS and url.port != 0
        usable = usable and not url.fragment
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(
            f"must be filesystem:// or redis://:PASSWORD@HOST:PORT/NUMBER; {ENCODED}"
        )
    return given


def checked_public_url(given: str) -> str:
    """Return the URL of a service as signatures cover it. Raises ValueError for any other."""
    if not PUBLIC_URL.fullmatch(given):
        raise ValueError(
            "must be the http(s) URL that clients see, in small letters, such as "
            "https://erasure.example.org: without spaces, user, query or fragment"
        )
    return given
