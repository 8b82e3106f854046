"""What the pages of console and intake share: headers, templates, files, and their forms."""

from importlib.resources import files
from typing import TYPE_CHECKING
from unicodedata import category
from urllib.parse import parse_qsl

from fastapi import Request, Response

from app.problems import BodyTooLargeError
from lethe.errors import LetheError

if TYPE_CHECKING:
    from jinja2 import Environment

HEADERS = {
    "x-content-type-options": "nosniff",
    # With no-referrer a browser would not send a form's origin (Fetch, section 3.2).
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
URLENCODED = "application/x-www-form-urlencoded"


def environment(package: str) -> "Environment":
    """Return the templates of a package."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # 50 ms: not at start-up

    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        finalize=visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def visible(value: object) -> object:
    """Return a value for a page, texts with U+FFFD in place of invisible characters.

    Notes, reasons, contacts and names of classes may hold some, such as U+202E, which reverses
    what follows on the page. Spaces of all widths and line feeds stay.
    """
    if type(value) is not str or value.isprintable():  # subclasses of it are markup
        return value
    return "".join(
        one
        if one == "\n" or one.isprintable() or category(one) == "Zs"
        else "\N{REPLACEMENT CHARACTER}"
        for one in value
    )


def static_file(package: str, name: str, media_type: str) -> Response:
    """Return a file of a package's folder `static`."""
    data = (files(package) / "static" / name).read_bytes()
    return Response(data, media_type=media_type, headers={"cache-control": "no-cache"})


def attachment(name: str) -> dict[str, str]:
    """Return the headers of a download that a browser saves under a name."""
    return {"content-disposition": f'attachment; filename="{name}"'}


def is_form(request: Request) -> bool:
    """Return whether a body is a URL-encoded form, as the pages send it."""
    return request.headers.get("content-type", "").partition(";")[0].strip() == URLENCODED


async def read_form(request: Request, most: int) -> bytes:
    """Return the body of a form. Raises BodyTooLargeError for more than `most` bytes."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise BodyTooLargeError(f"a form has at most {most} bytes")
    return bytes(body)


def parse_form(
    body: bytes, most: int, refused: type[LetheError], malformed: str, twice: str
) -> dict[str, str]:
    """Return the fields of a form. Raises `refused` with one of the two texts.

    most: its number of fields.
    """
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=most
        )
    except ValueError:  # UnicodeDecodeError is one
        raise refused(malformed) from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise refused(twice)
    return fields
