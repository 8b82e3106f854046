"""Reading .npz bodies of unknown senders: sizes first, no pickles.

This room is the only part of `app` that imports numpy. A body
is read in three steps, each of which bounds the next: how many members the archive has, what
the headers of the wanted ones say, and only then, if that fits the model, their data.
"""

import io
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from app.problems import BodyTooLargeError, UploadError

MAX_ID_LENGTH = 200
MAX_MEMBERS = 64  # of an archive; a registration or contribution has up to 11
MAX_HEADER = 10_000  # bytes, as numpy's own reader has it
MAX_RATIO = 100  # unpacked over sent: rows of numbers compress a few times, zeros a thousand
SMALL = 1 << 20  # bytes that any body may unpack to
ROW_BYTES = 256  # what the ids of a row cost beside their characters, as Python has them
BLOCK = 1 << 20  # bytes unpacked at a time
CENTRAL_HEADER = b"PK\x01\x02"  # of each entry of a directory, APPNOTE.TXT section 4.3.12
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what numpy writes
# What `zipfile` and zlib raise on damaged, encrypted or unknown members.
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    NotImplementedError,
    RuntimeError,
    ValueError,
    EOFError,
    OSError,
)
MALFORMED = (
    ValueError,
    TypeError,
    OverflowError,
    MemoryError,
    SyntaxError,
    tokenize.TokenError,
)
EXACT_SUM = 2**63  # an int64 sum of n products of two codes must stay below this


@dataclass(frozen=True, slots=True)
class Header:
    """What an array says of itself before its data: checked against its member's size."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    fortran: bool
    length: int  # bytes before the data

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of the data."""
        return self.size * self.dtype.itemsize


Headers = Mapping[str, Header]


def check_exactness(rows: int, bits: int) -> None:
    """Raise UploadError if the sums over so many rows could leave int64."""
    largest = 2 ** (bits - 1) - 1
    if rows * largest * largest >= EXACT_SUM:
        raise UploadError(
            f"{rows} rows of {bits}-bit codes overflow exact 64-bit sums: use fewer bits"
        )


def unpack(
    data: bytes,
    max_bytes: int,
    known: Sequence[str],
    required: Sequence[str],
    fit: Callable[[Headers], None],
) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of an .npz by name: those `known`, of which some are `required`.

    `fit` is given their headers before any data are unpacked, and raises if the arrays cannot
    be what is expected. Memory beyond `data` is at most `max_bytes` and a few MiB.

    Raises:
        UploadError: No readable .npz, too many members or two of one name, a required array is
            missing or unreadable, or it unpacks to more than 100 times what was sent.
        BodyTooLargeError: The known arrays would unpack to more than `max_bytes`.
    """
    # Before `zipfile` makes an object of each entry: 46 bytes become a thousand.
    if data.count(CENTRAL_HEADER) > MAX_MEMBERS:
        raise UploadError(f"the .npz has more than {MAX_MEMBERS} members")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = _members(archive)
            missing = [name for name in required if name not in members]
            if missing:
                raise UploadError(f"the .npz lacks: {', '.join(missing)}")
            wanted = {name: members[name] for name in known if name in members}
            if sum(info.file_size for info in wanted.values()) > max_bytes:
                raise BodyTooLargeError(f"the arrays unpack to more than {max_bytes} bytes")
            headers = {name: _header(archive, info) for name, info in wanted.items()}
            if sum(found.nbytes for found in headers.values()) > SMALL + MAX_RATIO * len(data):
                raise UploadError(
                    f"the arrays unpack to more than {MAX_RATIO} times what was sent: "
                    "save them uncompressed"
                )
            fit(headers)
            return {name: _read(archive, info, headers[name]) for name, info in wanted.items()}
    except UNREADABLE:
        raise UploadError("the upload is not a readable .npz file") from None


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name in members:
            raise UploadError("the .npz has two members of one name: which is meant?")
        members[name] = info
    return members


def _header(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Header:
    # bzip2 and LZMA cannot be unpacked a bounded piece at a time through `zipfile`.
    if info.compress_type not in METHODS:
        raise UploadError("the .npz is compressed in a way that numpy does not write")
    with archive.open(info) as member:
        start = member.read(12)
        long = start[6:8] != b"\x01\x00"  # version 1.0 has two bytes for the length
        length = int.from_bytes(start[8:12] if long else start[8:10], "little")
        if length > MAX_HEADER:
            raise UploadError("an array's header is too long")
        stream = io.BytesIO(start + member.read(length))
    try:
        version = npy.read_magic(stream)
        shape, fortran, dtype = (
            npy.read_array_header_1_0(stream)
            if version == (1, 0)
            else npy.read_array_header_2_0(stream)
        )
    except MALFORMED:
        raise UploadError("the .npz holds an array that cannot be read") from None
    if dtype.hasobject or dtype.itemsize == 0:
        raise UploadError("arrays of Python objects are refused")
    if dtype.kind not in "biufUS" or not all(extent >= 0 for extent in shape):
        raise UploadError("arrays must hold plain numbers or text")
    header = Header(shape, dtype, fortran, stream.tell())
    if header.length + header.nbytes != info.file_size:
        raise UploadError("an array's header does not fit its data")
    return header


def _read(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, header: Header
) -> NDArray[np.generic]:
    try:
        array: NDArray[np.generic] = np.empty(
            header.shape[::-1] if header.fortran else header.shape, header.dtype
        )
    except MALFORMED:
        raise UploadError("the .npz holds an array that cannot be read") from None
    into, filled = array.reshape(-1).view(np.uint8), 0
    with archive.open(info) as member:
        member.read(header.length)
        # To the end, where the checksum is compared; more than was declared is never read.
        while part := member.read(BLOCK):
            into[filled : filled + len(part)] = np.frombuffer(part, np.uint8)
            filled += len(part)
    if filled != header.nbytes:
        raise UploadError("the .npz misstates the size of an array")
    return array.T if header.fortran else array


def blocks(array: NDArray[np.generic]) -> Iterator[NDArray[np.generic]]:
    """Yield an array by rows, in blocks of about a million elements: masks stay small."""
    step = max(1, (1 << 20) // max(1, prod(array.shape[1:])))
    for start in range(0, len(array), step):
        yield array[start : start + step]


def check_ids(headers: Headers, names: Sequence[str], rows: int, max_bytes: int) -> None:
    """Check by their headers the ids of `rows` rows, before they become Python strings.

    Raises:
        UploadError: An array of ids has another shape or type, or room for ids too long.
        BodyTooLargeError: The ids would take more than `max_bytes`.
    """
    row = ROW_BYTES
    for name in names:
        if name not in headers:
            continue
        header = headers[name]
        if header.shape != (rows,) or header.dtype.kind not in "iuUS":
            raise UploadError(f"{name} must be one integer or string for each row")
        characters = _characters(header)
        # Four bytes of UTF-8 are one character of numpy's.
        if characters > MAX_ID_LENGTH * (4 if header.dtype.kind == "S" else 1):
            raise UploadError(f"{name} must be 1 to {MAX_ID_LENGTH} printable characters each")
        row += 4 * min(characters, MAX_ID_LENGTH)
    if rows * row > max_bytes:
        raise BodyTooLargeError(
            f"{rows} rows need more than {max_bytes} bytes for their ids: send them in parts"
        )


def _characters(header: Header) -> int:
    if header.dtype.kind == "U":
        return header.dtype.itemsize // 4
    return header.dtype.itemsize if header.dtype.kind == "S" else 20  # digits of a 64-bit id


def ids(array: NDArray[np.generic], name: str, rows: int) -> list[str]:
    """Return an array of `rows` ids as strings.

    Raises:
        UploadError: Another shape or type, or an id that is empty, too long or unprintable.
    """
    if array.shape != (rows,) or array.dtype.kind not in "iuUS":
        raise UploadError(f"{name} must be one integer or string for each row")
    try:
        values: Sequence[str] = [
            value.decode() if isinstance(value, bytes) else str(value)
            for value in array.tolist()
        ]
    except UnicodeDecodeError:
        raise UploadError(f"{name} must be UTF-8") from None
    for value in values:
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise UploadError(f"{name} hold half a character: write them as UTF-8")
        if not 0 < len(value) <= MAX_ID_LENGTH or any(
            ord(character) < 0x20 or ord(character) == 0x7F for character in value
        ):
            raise UploadError(f"{name} must be 1 to {MAX_ID_LENGTH} printable characters each")
    return list(values)
