"""Reading .npz bodies that nobody vouches for: sizes first, no pickles, no surprises.

With `app.api.owned`, the uploads and messages the only part of `app` that knows numpy.
"""

import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from app.service.problems import BodyTooLargeError, UploadError

MAX_ID_LENGTH = 200
# What `zipfile` and its decompressors raise on damaged, encrypted or unknown members.
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    NotImplementedError,
    RuntimeError,
    ValueError,
    EOFError,
    OSError,
)
EXACT_SUM = 2**63  # an int64 sum of n products of two codes must stay below this


def check_exactness(rows: int, bits: int) -> None:
    """Raise UploadError if the sums over so many rows could leave int64."""
    largest = 2 ** (bits - 1) - 1
    if rows * largest * largest >= EXACT_SUM:
        raise UploadError(
            f"{rows} rows of {bits}-bit codes overflow exact 64-bit sums: use fewer bits"
        )


def unpack(
    data: bytes, max_bytes: int, known: Sequence[str], required: Sequence[str]
) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of an .npz by name: those `known`, of which some are `required`.

    Raises:
        UploadError: No readable .npz, or a required array is missing or unreadable.
        BodyTooLargeError: The known arrays would unpack to more than `max_bytes`.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            missing = [name for name in required if name not in members]
            if missing:
                raise UploadError(f"the .npz lacks: {', '.join(missing)}")
            wanted = [members[name] for name in known if name in members]
            # The declared sizes are checked first and then enforced while reading: a small
            # file that unpacks to terabytes must not be unpacked to find out.
            if sum(info.file_size for info in wanted) > max_bytes:
                raise BodyTooLargeError(f"the arrays unpack to more than {max_bytes} bytes")
            return {info.filename.removesuffix(".npy"): _read(archive, info) for info in wanted}
    except UNREADABLE:
        raise UploadError("the upload is not a readable .npz file") from None


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[np.generic]:
    with archive.open(info) as member:
        raw = member.read(info.file_size + 1)
    if len(raw) != info.file_size:
        raise UploadError("the .npz misstates the size of an array")
    stream = io.BytesIO(raw)
    try:
        version = npy.read_magic(stream)
        shape, _, dtype = (
            npy.read_array_header_1_0(stream)
            if version == (1, 0)
            else npy.read_array_header_2_0(stream)
        )
        if dtype.hasobject or dtype.itemsize == 0:
            raise UploadError("arrays of Python objects are refused")
        if stream.tell() + dtype.itemsize * int(np.prod(shape, dtype=object)) != len(raw):
            raise UploadError("an array's header does not fit its data")
        stream.seek(0)
        array: NDArray[np.generic] = npy.read_array(stream, allow_pickle=False)
    except (ValueError, TypeError, OverflowError, MemoryError, SyntaxError):
        raise UploadError("the .npz holds an array that cannot be read") from None
    return array


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
