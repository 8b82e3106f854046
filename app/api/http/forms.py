"""Multipart bodies, read only after their sender is authorised.

FastAPI reads a declared form before any dependency authenticates the caller, and writes parts
over 1 MiB to an unsealed temporary file. So routes read theirs here: rows into a sealed file,
all else into memory.
"""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from app.uploads.spool import Spool


class _InMemoryParser(MultiPartParser):
    spool_max_size = sys.maxsize  # rows of people's data are never written unsealed


class _SealedFile(UploadFile):
    """A part that is a file: sealed on disk as it arrives (`Spool`)."""

    def __init__(self, spool: Spool) -> None:
        super().__init__(cast(BinaryIO, spool))
        self.spool = spool

    async def write(self, data: bytes) -> None:
        """Write, in a thread if it has to wait for the disk."""
        await feed(self.spool, data)


class _SealingParser(MultiPartParser):
    folder: Path
    spools: list[Spool]

    def on_headers_finished(self) -> None:
        super().on_headers_finished()
        if self._current_part.file is not None:
            self._files_to_close_on_error.pop().close()  # still in memory, and empty
            self.spools.append(Spool(self.folder))
            self._current_part.file = _SealedFile(self.spools[-1])


async def feed(spool: Spool, data: bytes) -> None:
    """Write to a spool, in a thread if it has to wait for the disk. Raises SpoolError."""
    if spool.fits(data):
        spool.write(data)
    else:
        await run_in_threadpool(spool.write, data)


@asynccontextmanager
async def read_rows(
    request: Request, folder: Path, field_bytes: int
) -> AsyncIterator[tuple[bytes, Spool | None]]:
    """Read the form of a registration: `manifest` and, where it is sent, the file `data`.

    Args:
        request: Its body is read here, within the limit of `app.api.http.limits`.
        folder: Where `data` is kept, sealed, until the end of the block.
        field_bytes: Largest part that is not a file, and largest manifest.

    Raises:
        RequestValidationError: It is not such a form, or the manifest is missing or too large.
    """
    parser = _SealingParser(
        _form_headers(request),
        request.stream(),
        max_files=2,
        max_fields=2,
        max_part_size=field_bytes,
    )
    parser.folder, parser.spools = folder, []
    spools = parser.spools
    try:
        try:
            form = await parser.parse()
        except MultiPartException:
            raise _invalid(
                "form_invalid",
                (),
                "not valid multipart/form-data, or with too many or too large parts",
            ) from None
        manifest, data = form.get("manifest"), form.get("data")
        if manifest is None:
            raise _invalid("missing", ("manifest",), "Field required")
        if isinstance(manifest, _SealedFile):
            if manifest.spool.size > field_bytes:
                raise _invalid(
                    "form_invalid", ("manifest",), f"larger than {field_bytes} bytes"
                )
            text = manifest.spool.read()
        else:
            text = _encoded(manifest)
        if isinstance(data, str):
            spools.append(rows := Spool(folder))
            await feed(rows, _encoded(data))
            yield text, rows
        else:
            yield text, data.spool if isinstance(data, _SealedFile) else None
    finally:
        for spool in spools:
            spool.close()


async def read_form(
    request: Request, *, required: Sequence[str], optional: Sequence[str] = (), field_bytes: int
) -> dict[str, bytes]:
    """Return the named parts of a multipart/form-data body; others are ignored.

    Args:
        request: Its body is read here, within the limit of `app.api.http.limits`.
        required: Required parts.
        optional: Optional parts.
        field_bytes: Largest part that is not a file.

    Raises:
        RequestValidationError: It is not such a form, or a part is missing.
    """
    wanted = {*required, *optional}
    parser = _InMemoryParser(
        _form_headers(request),
        request.stream(),
        max_files=len(wanted),
        max_fields=len(wanted),
        max_part_size=field_bytes,
    )
    try:
        form = await parser.parse()
    except MultiPartException:
        raise _invalid(
            "form_invalid",
            (),
            "not valid multipart/form-data, or with too many or too large parts",
        ) from None
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

    json: the names of the schemas that the part `manifest` may have.
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


def _form_headers(request: Request) -> Headers:
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise _invalid("form_type", (), "send multipart/form-data")
    return request.headers


async def _content(value: UploadFile | str) -> bytes:
    return await value.read() if isinstance(value, UploadFile) else _encoded(value)


def _encoded(value: UploadFile | str) -> bytes:
    assert isinstance(value, str)
    # An unusual charset can decode to surrogates, which become invalid UTF-8 here.
    return value.encode("utf-8", "surrogatepass")


def _invalid(kind: str, place: tuple[str, ...], message: str) -> RequestValidationError:
    return RequestValidationError([{"type": kind, "loc": ("body", *place), "msg": message}])
