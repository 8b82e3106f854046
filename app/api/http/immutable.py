"""How long caches may keep an answer: forever, until they revalidate it, or not at all."""

import hashlib
import re

from fastapi import Request, Response

YEAR = 31_536_000  # seconds
_TAG = re.compile(r'(?:W/)?("[^"]*")')


def immutable(
    request: Request, data: bytes, media_type: str, *, shared: bool = False
) -> Response:
    """Return `data`, or 304 if the client has it.

    shared: whether a shared cache may keep it, which only suits data that anybody may read.
    """
    scope = "public" if shared else "private"
    return _tagged(request, data, media_type, f"{scope}, max-age={YEAR}, immutable")


def revalidated(request: Request, data: bytes, media_type: str) -> Response:
    """Return `data`, or 304 if the client has it and it is still served.

    For files that may be shredded later: a cache must revalidate, and then gets 410.
    """
    return _tagged(request, data, media_type, "private, no-cache")


def unkept(data: bytes, media_type: str) -> Response:
    """Return `data`, which is of people's records and must be in no cache at all."""
    return Response(data, media_type=media_type, headers={"cache-control": "no-store"})


def _tagged(request: Request, data: bytes, media_type: str, caching: str) -> Response:
    etag = f'"{hashlib.sha256(data).hexdigest()}"'
    headers = {"etag": etag, "cache-control": caching}
    if _matches(request.headers.getlist("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=media_type, headers=headers)


def _matches(sent: list[str], etag: str) -> bool:
    """Compare weakly, as If-None-Match is (RFC 9110 section 13.1.2): W/"x" matches "x"."""
    value = ", ".join(sent)
    return value.strip() == "*" or etag in _TAG.findall(value)
