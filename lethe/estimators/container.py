"""One byte string for a model: a header in canonical JSON, then arrays, little-endian.

    magic | length of the header, uint32 | header | bytes of each array, in order

The header is the caller's, plus `arrays`: type and shape of each. Equal contents have equal
bytes.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.canonical import NotCanonicalError, decode, encode
from lethe.estimators.errors import EstimatorInputError

MAGIC = b"lethe/model/v1\0\n"
MOST_DIMENSIONS = 8  # a product of thousands of large numbers takes minutes
_TYPES = frozenset({"|u1", "<u2", "<u4", "<i2", "<i4", "<i8", "<f8", "<f4"})


def pack(header: dict[str, Any], arrays: Sequence[NDArray[Any]]) -> bytes:
    """Return the bytes of a header, which has no member `arrays`, and arrays."""
    plain = [np.ascontiguousarray(one, one.dtype.newbyteorder("<")) for one in arrays]
    assert all(one.dtype.str in _TYPES for one in plain)
    kinds = [[one.dtype.str, list(one.shape)] for one in plain]
    head = encode({**header, "arrays": kinds})
    return b"".join(
        [MAGIC, len(head).to_bytes(4, "little"), head, *(one.tobytes() for one in plain)]
    )


def unpack(data: bytes, *kinds: str) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """Return header and arrays (read-only) of a file whose header has one of `kinds`.

    Raises EstimatorInputError: the bytes are not such a file.
    """
    try:
        return _unpacked(data, kinds)
    except (AttributeError, KeyError, NotCanonicalError, TypeError, ValueError):
        known = " or ".join(kinds)
        raise EstimatorInputError(f"this is not a {known} file: read it again") from None


def _unpacked(data: bytes, kinds: Sequence[str]) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    start = len(MAGIC) + 4
    end = start + int.from_bytes(data[len(MAGIC) : start], "little")
    header = decode(data[start:end])
    if not data.startswith(MAGIC) or header["kind"] not in kinds:
        raise ValueError("another kind of file")
    arrays = []
    for name, shape in header.pop("arrays"):
        known = name in _TYPES and len(shape) <= MOST_DIMENSIONS
        if not known or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError("an array of no known type or shape")
        size = prod(shape) * np.dtype(name).itemsize
        arrays.append(np.frombuffer(data[end : end + size], name).reshape(shape))
        end += size
    if end != len(data):
        raise ValueError("bytes are missing, or follow the last array")
    return header, arrays
