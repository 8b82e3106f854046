"""Reading untrusted .npz bodies: sizes first, no pickles.

This room is the only part of `app` that imports numpy. A body is read in three steps, each of
which bounds the next: the number of members, the headers of the wanted ones and, if these fit
the model, their data.
"""

import io
import struct
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from typing import BinaryIO, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from app.problems import BodyTooLargeError, UploadError
from app.uploads.spool import Spool
from lethe.archives import most_entries
from lethe.identity import COLUMN, HELD_OUT
from lethe.ids import MOST, RULE, is_id

MAX_MEMBERS = 64  # of an archive; a registration or contribution has up to 11
# Bytes. For plain numbers and text numpy writes 118, rarely 182. Its reader accepts 10,000, of
# which it spends 20 seconds on one that is malformed: its tokenizer is quadratic in spaces.
MAX_HEADER = 256
MAX_RATIO = 100  # unpacked over sent: rows of numbers compress a few times, zeros a thousand
SMALL = 1 << 20  # bytes that any body may unpack to
ROW_BYTES = 256  # overhead of a row's ids as Python strings
BLOCK = 1 << 20  # bytes unpacked at a time
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what numpy writes
# Errors of `zipfile` and zlib on damaged, encrypted or unknown members.
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
IDENTITIES = (COLUMN, HELD_OUT + COLUMN)  # prefixes of the names of arrays of identities
EVALUATED = tuple(HELD_OUT + name for name in ("features", "labels", "clients", "subjects"))
HELD_OUT_RECORDS = HELD_OUT + "records"
HELD_OUT_ROWS = (*EVALUATED, HELD_OUT_RECORDS)
LABEL_NAMES = "label_names"
MARKS = "is_test"  # which rows of a file Lethe's commands hold out
# Further arrays of Lethe's own files, which are ignored.
PASSENGERS = ("extractor", MARKS, LABEL_NAMES, "labels")
EXACT_SUM = 2**63  # an int64 sum of n products of two codes must stay below this


@dataclass(frozen=True, slots=True)
class Header:
    """The header of an array, checked against its member's size."""

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
    """Raise UploadError if the sums over `rows` rows could overflow int64."""
    largest = 2 ** (bits - 1) - 1
    if rows * largest * largest >= EXACT_SUM:
        raise UploadError(
            f"{rows} rows of {bits}-bit codes overflow exact 64-bit sums: send "
            "fewer rows at a time, or register the model with fewer bits"
        )


@dataclass(frozen=True, slots=True)
class Archive:
    """An .npz whose headers were checked; its arrays are unpacked as they are read."""

    headers: Headers
    _archive: zipfile.ZipFile
    _members: Mapping[str, zipfile.ZipInfo]

    def blocks(self, name: str) -> Iterator[NDArray[np.generic]]:
        """Yield an array's elements in stored order, about BLOCK bytes at a time.

        Raises UploadError if the member is damaged or has another size than its header says.
        """
        return read_blocks(self._archive, self._members[name], self.headers[name])

    def array(self, name: str) -> NDArray[np.generic]:
        """Return an array whole. Raises UploadError as `blocks`."""
        header = self.headers[name]
        try:
            array: NDArray[np.generic] = np.empty(
                header.shape[::-1] if header.fortran else header.shape, header.dtype
            )
        except MALFORMED:
            raise UploadError(
                "the .npz has an array that cannot be read: save it again with numpy.savez"
            ) from None
        flat, filled = array.reshape(-1), 0
        for block in self.blocks(name):
            flat[filled : filled + len(block)] = block
            filled += len(block)
        return array.T if header.fortran else array


@contextmanager
def opened(
    body: Spool,
    max_bytes: int,
    known: Sequence[str],
    required: Sequence[str],
    fit: Callable[[Headers], None],
) -> Iterator[Archive]:
    """Open an .npz for its arrays `known`, of held-out rows and of identities.

    Some of these are `required`.

    `fit` gets their headers before any data are unpacked, and raises UploadError if they do not
    fit the model.

    Raises UploadError: the file is no readable .npz, has too many members, two of one name or
    an unknown one, a required array is missing or unreadable, it marks rows as held out, or it
    unpacks to more than 100 times its size; BodyTooLargeError: the arrays that are read would
    unpack to more than `max_bytes`.
    """
    if most_entries(body) > MAX_MEMBERS:
        raise UploadError(
            f"the .npz has more than {MAX_MEMBERS} members: save only the arrays that are read"
        )
    with ExitStack() as stack:
        with _readable():
            archive = stack.enter_context(zipfile.ZipFile(cast(BinaryIO, body)))
            members = _members(archive)
            missing = [name for name in required if name not in members]
            if missing:
                raise UploadError(f"the .npz lacks: {', '.join(missing)}")
            identities = sorted(name for name in members if name.startswith(IDENTITIES))
            read = (*known, *HELD_OUT_ROWS, *identities)
            # A misspelt `subjects` would be ignored silently, and its people not found later.
            if members.keys() - {*read, *PASSENGERS}:
                raise UploadError(
                    f"the .npz has an array that nothing reads; known are {', '.join(known)}, "
                    f"{', '.join(HELD_OUT_ROWS)}, {COLUMN}KIND and {HELD_OUT}{COLUMN}KIND: "
                    "rename it, or leave it out"
                )
            wanted = {name: members[name] for name in read if name in members}
            marked = {MARKS: members[MARKS]} if MARKS in members else {}
            if sum(info.file_size for info in (*wanted.values(), *marked.values())) > max_bytes:
                raise BodyTooLargeError(
                    f"the arrays unpack to more than {max_bytes} bytes: send fewer rows at "
                    "a time"
                )
            headers = {name: _header(archive, info) for name, info in wanted.items()}
            marks = {name: _header(archive, info) for name, info in marked.items()}
            unpacked = sum(found.nbytes for found in (*headers.values(), *marks.values()))
            if unpacked > SMALL + MAX_RATIO * body.size:
                raise UploadError(
                    f"the arrays unpack to more than {MAX_RATIO} times what was sent: "
                    "save them uncompressed"
                )
            fit(headers)
            _refuse_marked(Archive(marks, archive, marked))
        yield Archive(headers, archive, wanted)


def _refuse_marked(sent: Archive) -> None:
    # The commands set such rows aside before they send the others: here they would be learned.
    for name, header in sent.headers.items():
        unread = header.dtype != np.bool_ or header.ndim != 1
        if unread or any(block.any() for block in sent.blocks(name)):
            raise UploadError(
                f"{name} marks rows as held out, which only Lethe's commands read: send their "
                f"features as {HELD_OUT}features and so on, or leave them and {name} out"
            )


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except UNREADABLE:
        raise UploadError(
            "the upload is not a readable .npz file: save it with numpy.savez"
        ) from None


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name in members:
            raise UploadError("the .npz has two members of the same name: keep one")
        members[name] = info
    return members


def _header(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Header:
    # `zipfile` cannot unpack bzip2 and LZMA in pieces of bounded size.
    if info.compress_type not in METHODS:
        raise UploadError(
            "the .npz uses a compression that numpy does not write: save it with numpy.savez"
        )
    with archive.open(info) as member:
        start = member.read(12)
        long = start[6:8] != b"\x01\x00"  # version 1.0 has two bytes for the length
        length = int.from_bytes(start[8:12] if long else start[8:10], "little")
        if length > MAX_HEADER:
            raise UploadError(
                "an array's header is too long: save the .npz again with numpy.savez"
            )
        stream = io.BytesIO(start + member.read(length))
    try:
        version = npy.read_magic(stream)
        shape, fortran, dtype = (
            npy.read_array_header_1_0(stream)
            if version == (1, 0)
            else npy.read_array_header_2_0(stream)
        )
    except MALFORMED:
        raise UploadError(
            "the .npz has an array that cannot be read: save it again with numpy.savez"
        ) from None
    if dtype.hasobject or dtype.itemsize == 0:
        raise UploadError("arrays of Python objects are refused: save numbers or texts")
    if dtype.kind not in "biufUS" or not all(extent >= 0 for extent in shape):
        raise UploadError(
            "arrays must hold plain numbers or texts: save them with such a dtype"
        )
    header = Header(shape, dtype, fortran, stream.tell())
    if header.length + header.nbytes != info.file_size:
        raise UploadError(
            "an array's header does not fit its data: save the .npz again with numpy.savez"
        )
    return header


def read_blocks(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, header: Header
) -> Iterator[NDArray[np.generic]]:
    """Yield an array's values in blocks. Raises UploadError if it is not what it declares."""
    step = max(1, BLOCK // header.dtype.itemsize) * header.dtype.itemsize
    filled = 0
    with _readable(), archive.open(info) as member:
        member.read(header.length)
        # To the end, where the checksum is compared; never more than was declared.
        while part := member.read(step):
            filled += len(part)
            if len(part) % header.dtype.itemsize:
                break
            yield np.frombuffer(part, header.dtype)
    if filled != header.nbytes:
        raise UploadError(
            "the .npz misstates the size of an array: save it again with numpy.savez"
        )


def check_ids(headers: Headers, names: Sequence[str], rows: int, max_bytes: int) -> None:
    """Check the ids of `rows` rows by their headers, before they become Python strings.

    Raises UploadError: an array of ids has another shape or type, or room for ids too long;
    BodyTooLargeError: the ids would take more than `max_bytes`.
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
        if characters > MOST * (4 if header.dtype.kind == "S" else 1):
            raise UploadError(f"{name} must be {RULE}, each")
        row += 4 * min(characters, MOST)
    if rows * row > max_bytes:
        raise BodyTooLargeError(
            f"{rows} rows need more than {max_bytes} bytes for their ids: send them in parts"
        )


def _characters(header: Header) -> int:
    if header.dtype.kind == "U":
        return header.dtype.itemsize // 4
    return header.dtype.itemsize if header.dtype.kind == "S" else 20  # digits of a 64-bit id


def read_ids(archive: Archive, name: str) -> list[str]:
    """Return an array of ids as strings, equal ones as one object.

    Raises UploadError as `ids`.
    """
    (rows,) = archive.headers[name].shape
    same: dict[str, str] = {}
    values: list[str] = []
    for block in archive.blocks(name):
        values += [same.setdefault(one, one) for one in ids(block, name, len(block))]
    assert len(values) == rows
    return values


def ids(array: NDArray[np.generic], name: str, rows: int) -> list[str]:
    """Return an array of `rows` ids as strings.

    Raises UploadError for another shape or type, or an empty, too long or unprintable id.
    """
    if array.shape != (rows,) or array.dtype.kind not in "iuUS":
        raise UploadError(f"{name} must be one integer or string for each row")
    if array.dtype.kind in "iu":
        return list(map(str, array.tolist()))
    # numpy makes text of such code points, which Python cannot handle.
    if array.dtype.kind == "U" and (_codes(array) > sys.maxunicode).any():
        raise UploadError(f"{name} must be UTF-8")
    if array.dtype.kind == "U" and _are_plain(array):
        found: list[str] = array.tolist()
        return found
    try:
        values: Sequence[str] = [
            value.decode() if isinstance(value, bytes) else str(value)
            for value in array.tolist()
        ]
    except UnicodeDecodeError:
        raise UploadError(f"{name} must be UTF-8") from None
    if any("\ud800" <= one <= "\udfff" for value in values for one in value):
        raise UploadError(f"{name} hold half a character: write them as UTF-8")
    if not all(map(is_id, values)):
        raise UploadError(f"{name} must be {RULE}, each")
    return list(values)


def _codes(array: NDArray[np.generic]) -> NDArray[np.uint32]:
    """Return the code points of texts, (rows, width)."""
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return native.view(np.uint32).reshape(len(array), array.dtype.itemsize // 4)


def _are_plain(array: NDArray[np.generic]) -> bool:
    """Return whether all texts are ids in ASCII, so that `ids` need not check each.

    A text is padded with NULs to the width of the array, and may have none before its last
    character.
    """
    width = array.dtype.itemsize // 4
    if not len(array) or width > MOST:
        return False
    codes = _codes(array)
    filled = codes != 0
    strange = ((codes < 0x20) & filled) | (codes >= 0x7F)
    last = codes[np.arange(len(codes)), filled.sum(axis=1) - 1]
    return (
        bool(filled[:, 0].all() and not strange.any())
        and not (~filled[:, :-1] & filled[:, 1:]).any()
        and not ((codes[:, 0] == 0x20) | (last == 0x20)).any()
    )
