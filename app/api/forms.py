"""Multipart bodies, read only once it is known that their sender may send them.

FastAPI reads a form that a route declares before it asks any dependency who is calling, and
writes parts over 1 MiB to a temporary file, which nobody seals. So routes read theirs here.
"""

import sys
from collections.abc import Sequence
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser


class _InMemoryParser(MultiPartParser):
    spool_max_size = sys.maxsize  # rows of people's data are never written unsealed


async def read_form(
    request: Request,
    *,
    required: Sequence[str],
    optional: Sequence[str] = (),
    field_bytes: int,
) -> dict[str, bytes]:
    """Return the named parts of a multipart/form-data body; others are ignored.

    Args:
        request: Its body is read here, within the limit of `app.api.limits`.
        required: Parts that must be there.
        optional: Parts that may be.
        field_bytes: Largest part that is no file.

    Raises:
        RequestValidationError: It is no such body, or a part is missing.
    """
    wanted = {*required, *optional}
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise _invalid("form_type", (), "send multipart/form-data")
    parser = _InMemoryParser(
        request.headers,
        request.stream(),
        max_files=len(wanted),
        max_fields=len(wanted),
        max_part_size=field_bytes,
    )
    try:
        form = await parser.parse()
    except MultiPartException:
        raise _invalid("form_invalid", (), "not valid multipart/form-data") from None
    try:
        parts = {
            name: await _content(value) for name, value in form.multi_items() if name in wanted
        }
    finally:
        await form.close()
    for name in required:
        if name not in parts:
            raise _invalid("missing", (name,), "Field required")
    return parts


def describe_form(
    *, optional: Sequence[str] = (), json: Sequence[str] = (), **parts: str
) -> dict[str, Any]:
    """Return the OpenAPI description of a body of these parts, by their meaning.

    json names the schemas, one of which the part `manifest` has.
    """
    properties: dict[str, Any] = {
        name: {"type": "string", "format": "binary", "description": meaning}
        for name, meaning in parts.items()
    }
    if json:
        one_of = [{"$ref": f"#/components/schemas/{name}"} for name in json]
        properties["manifest"] |= {
            "contentMediaType": "application/json",
            "contentSchema": {"oneOf": one_of},
        }
        del properties["manifest"]["format"]
    required = [name for name in parts if name not in optional]
    schema = {"type": "object", "properties": properties, "required": required}
    content = {"multipart/form-data": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


def describe_bytes(*media_types: str) -> dict[str, Any]:
    """Return the OpenAPI description of a body that is a file of one of these types."""
    schema = {"type": "string", "format": "binary"}
    content = {media_type: {"schema": schema} for media_type in media_types}
    return {"requestBody": {"required": True, "content": content}}


async def _content(value: UploadFile | str) -> bytes:
    if isinstance(value, UploadFile):
        return await value.read()
    # A strange charset can decode to surrogates; as bytes they are just not valid UTF-8.
    return value.encode("utf-8", "surrogatepass")


def _invalid(kind: str, place: tuple[str, ...], message: str) -> RequestValidationError:
    return RequestValidationError([{"type": kind, "loc": ("body", *place), "msg": message}])
