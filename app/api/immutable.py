"""Responses whose bytes never change: ETag, 304, and a year in every cache."""

import hashlib

from fastapi import Request, Response

YEAR = 31_536_000  # seconds


def immutable(
    request: Request, data: bytes, media_type: str, *, shared: bool = False
) -> Response:
    """Return `data`, or 304 if the client has it.

    shared says whether a cache in between may keep it: true for what anybody may read, not
    for what only the holder of an id may.
    """
    etag = f'"{hashlib.sha256(data).hexdigest()}"'
    headers = {
        "etag": etag,
        "cache-control": f"{'public' if shared else 'private'}, max-age={YEAR}, immutable",
    }
    known = [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]
    if etag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=media_type, headers=headers)
