"""The array types of all methods, and arrays with a little metadata as one safetensors file.

The file has exactly one encoding. The safetensors library writes its metadata from a hash map,
in an order that differs from process to process, so the header is written here: keys sorted,
one metadata key that holds canonical JSON, spaces up to a multiple of eight. Any safetensors
reader opens the result. Parsing is by round trip: bytes that the encoder would not write are
rejected.
"""

import json
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from workers.errors import ArtifactError, RefusedError

Matrix = NDArray[np.float64]
IntMatrix = NDArray[np.int64]
Codes = NDArray[np.int16]  # quantised features
Labels = NDArray[np.int64]
Head = NDArray[np.float32]

# What `numpy.load`, and reading a member of its result, raise for bytes that are not an .npz. A
# member that is not a numpy array comes back as bytes; a file with a single array comes back
# without members.
UNREADABLE = (
    OSError, ValueError, EOFError, KeyError, SyntaxError, MemoryError, NotImplementedError,
    OverflowError, RuntimeError, AttributeError, TypeError, tokenize.TokenError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip

MAX_HEADER = 256  # bytes of one array's header; the reason stands in `app.uploads.npz`


def load_numpy(file: Path | IO[bytes]) -> Any:
    """Return what a file of others holds: an array, or an archive of arrays (`NpzFile`).

    Nothing in the file is executed: pickled objects are refused. Raises one of UNREADABLE; so
    does reading a member of the archive.
    """
    return np.load(file, allow_pickle=False, max_header_size=MAX_HEADER)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Quantised training rows: codes (m, d) int16 and one int64 class label per row, (m,).

    Raises RefusedError for any other shape or dtype. A row is its position, not its
    content: duplicates count as often as they occur.
    """

    codes: Codes
    labels: Labels

    def __post_init__(self) -> None:
        if self.codes.dtype != np.int16 or self.codes.ndim != 2:
            raise RefusedError("codes must be an int16 matrix: quantise the features first")
        if self.labels.dtype != np.int64 or self.labels.shape != (len(self.codes),):
            raise RefusedError("labels must be int64, exactly one for each row of codes")

    def __len__(self) -> int:
        return len(self.codes)


METADATA_KEY = "lethe"
DTYPES = {
    "BOOL": "|b1",
    "F32": "<f4",
    "F64": "<f8",
    "I8": "|i1",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
    "U8": "|u1",
    "U16": "<u2",
    "U32": "<u4",
    "U64": "<u8",
}
MALFORMED = (
    AttributeError,
    KeyError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)


def dtype_name(array: NDArray[Any]) -> str:
    """Return the safetensors name of a dtype: F32, I64."""
    if array.dtype.kind == "b":
        return "BOOL"
    if array.dtype.kind not in "fiu":  # numpy's text dtypes spell U too
        return array.dtype.name
    return f"{array.dtype.kind.upper()}{8 * array.dtype.itemsize}"


def encode_tensors(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, object]) -> bytes:
    """Return the file of arrays of DTYPES and JSON metadata: a pure function.

    Raises ArtifactError for another type, a reserved name, or metadata that is not JSON.
    """
    try:
        header: dict[str, object] = {"__metadata__": {METADATA_KEY: _canonical(metadata)}}
    except MALFORMED:
        raise ArtifactError("the metadata is not JSON with finite numbers") from None
    parts, offset = [], 0
    for name in sorted(arrays):
        kind = dtype_name(arrays[name])
        if kind not in DTYPES or name in header:
            raise ArtifactError("an array has a type or a name that the file cannot hold")
        parts.append(arrays[name].astype(DTYPES[kind]).tobytes())
        end = offset + len(parts[-1])
        header[name] = {
            "data_offsets": [offset, end],
            "dtype": kind,
            "shape": list(arrays[name].shape),
        }
        offset = end
    text = _canonical(header).encode("ascii")
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def decode_tensors(data: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return (arrays, metadata) of a file that `encode_tensors` would write, byte for byte.

    The arrays are writable copies. Raises ArtifactError for any other bytes.
    """
    try:
        arrays, metadata = parse_tensors(data)
        if isinstance(metadata, dict) and encode_tensors(arrays, metadata) == data:
            return arrays, metadata
    except (ArtifactError, *MALFORMED):
        pass  # reported below, like bytes that parse but differ
    raise ArtifactError("these bytes are not a canonical safetensors file: fetch it again")


def parse_tensors(data: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return (arrays, metadata) of a file that need not be in the canonical encoding.

    For callers that compare the file with what they would write. Raises one of MALFORMED, also
    if arrays share bytes: a copy for each would make gigabytes of a few hundred kilobytes.
    """
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    metadata: dict[str, Any] = json.loads(header.pop("__metadata__")[METADATA_KEY])
    arrays: dict[str, NDArray[Any]] = {}
    left = len(data) - end
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        left -= last - first
        if not 0 <= first <= last or left < 0:
            raise ValueError("arrays share bytes")
        values = np.frombuffer(data[end + first : end + last], DTYPES[entry["dtype"]])
        native = values.astype(values.dtype.newbyteorder("="))
        arrays[name] = native.reshape(entry["shape"])
    return arrays, metadata


def metadata_of(data: bytes) -> dict[str, str]:
    """Return the metadata of any safetensors file, which `safetensors.load` leaves out."""
    end = 8 + int.from_bytes(data[:8], "little")
    found: dict[str, str] = json.loads(data[8:end])["__metadata__"]
    return found


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
