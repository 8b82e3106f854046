"""Arrays in, checked before anything is stored.

The only module of `app` that knows numpy. What it lets through is safe to compute with:
finite, of consistent shapes, within the exactness bound, of distinct record ids.
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
from app.service.upload import CheckedUpload

ARRAYS = ("features", "labels", "clients", "records", "subjects")
REQUIRED = ("features", "labels", "clients")
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


def parse_upload(
    data: bytes,
    *,
    dimension: int,
    classes: int,
    bits: int,
    max_bytes: int,
    records_required: bool = False,
) -> CheckedUpload:
    """Check an uploaded .npz against a model's configuration.

    `subjects` defaults to the clients and, unless `records_required`, `records` to the row
    numbers, which are distinct within one upload only.

    Raises:
        UploadError: The file is no .npz, an array is missing, has a wrong shape or type, holds
            a NaN, infinity or an unknown label, ids repeat, or there are too many rows for
            exact arithmetic.
        BodyTooLargeError: It would unpack to more than `max_bytes`.
    """
    arrays = _unpack(data, max_bytes)
    features, labels = arrays["features"], arrays["labels"]
    if features.ndim != 2 or features.dtype not in (np.float16, np.float32, np.float64):
        raise UploadError("features must be a float16, float32 or float64 matrix")
    rows = features.shape[0]
    if features.shape[1] != dimension:
        raise UploadError(f"features have {features.shape[1]} columns, the model {dimension}")
    if rows == 0:
        raise UploadError("the upload has no rows")
    _check_exactness(rows, bits)
    for start in range(0, rows, 4096):  # in blocks: isfinite allocates a mask of its input
        if not np.isfinite(features[start : start + 4096]).all():
            raise UploadError("features hold a NaN or an infinity: clean the rows")
    if labels.shape != (rows,) or labels.dtype.kind not in "iu":
        raise UploadError("labels must be one integer for each row")
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise UploadError(f"labels must lie between 0 and {classes - 1}")
    if records_required and "records" not in arrays:
        raise UploadError("the .npz lacks: records")
    clients = _ids(arrays["clients"], "clients", rows)
    records = _ids(arrays.get("records", np.arange(rows)), "records", rows)
    subjects = _ids(arrays["subjects"], "subjects", rows) if "subjects" in arrays else clients
    if len(set(records)) != rows:
        raise UploadError("record ids repeat: a record is its id, so each needs its own")
    packed = io.BytesIO()
    np.savez(
        packed,
        allow_pickle=False,
        features=features,
        labels=labels.astype(np.int64),
        clients=np.array(clients),
        records=np.array(records),
        subjects=np.array(subjects),
    )
    return CheckedUpload(packed.getvalue(), rows, records, clients, list(subjects))


def _check_exactness(rows: int, bits: int) -> None:
    largest = 2 ** (bits - 1) - 1
    if rows * largest * largest >= EXACT_SUM:
        raise UploadError(
            f"{rows} rows of {bits}-bit codes overflow exact 64-bit sums: use fewer bits"
        )


def _unpack(data: bytes, max_bytes: int) -> dict[str, NDArray[np.generic]]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            missing = [name for name in REQUIRED if name not in members]
            if missing:
                raise UploadError(f"the .npz lacks: {', '.join(missing)}")
            wanted = [members[name] for name in ARRAYS if name in members]
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


def _ids(array: NDArray[np.generic], name: str, rows: int) -> list[str]:
    if array.shape != (rows,) or array.dtype.kind not in "iuUS":
        raise UploadError(f"{name} must be one integer or string for each row")
    try:
        ids: Sequence[str] = [
            value.decode() if isinstance(value, bytes) else str(value)
            for value in array.tolist()
        ]
    except UnicodeDecodeError:
        raise UploadError(f"{name} must be UTF-8") from None
    for value in ids:
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise UploadError(f"{name} hold half a character: write them as UTF-8")
        if not 0 < len(value) <= MAX_ID_LENGTH or any(
            ord(character) < 0x20 or ord(character) == 0x7F for character in value
        ):
            raise UploadError(f"{name} must be 1 to {MAX_ID_LENGTH} printable characters each")
    return list(ids)
