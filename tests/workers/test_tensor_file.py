"""The safetensors encoder that heads, states, networks and round messages share."""

import json
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from workers.arrays import decode_tensors, encode_tensors, parse_tensors
from workers.errors import ArtifactError

ARRAYS: dict[str, Any] = {
    "b": np.array([[1.5, -0.0]], dtype=np.float32),
    "a/ü": np.array([2**62, -1]),
    "c": np.array(5e-324),
    "none": np.empty((0, 3)),
    "flags": np.array([True, False]),
    "bytes": np.array([0, 255], dtype=np.uint8),
}
METADATA = {"kind": "test/1", "list": [1, "x", None], "ü": True}


def test_round_trip_and_the_library() -> None:
    data = encode_tensors(ARRAYS, METADATA)
    arrays, metadata = decode_tensors(data)
    assert metadata == METADATA
    assert encode_tensors(dict(reversed(arrays.items())), metadata) == data
    theirs = safetensors.numpy.load(data)
    for name, array in ARRAYS.items():
        for found in (arrays[name], theirs[name]):
            assert (found.dtype, found.shape) == (array.dtype, array.shape)
            assert found.tobytes() == array.tobytes()
        arrays[name][...] = 0  # a copy, and writable


@pytest.mark.parametrize(
    ("arrays", "metadata"),
    [
        ({"a": np.zeros(2, dtype=np.float16)}, {}),
        ({"a": np.zeros(2, dtype=np.complex128)}, {}),
        ({"a": np.array(["x"])}, {}),
        ({"__metadata__": np.zeros(1)}, {}),
        ({}, {"a": float("nan")}),
        ({}, {"a": b"bytes"}),
    ],
)
def test_what_cannot_be_written(arrays: dict[str, Any], metadata: dict[str, Any]) -> None:
    with pytest.raises(ArtifactError):
        encode_tensors(arrays, metadata)


def test_another_spelling_is_parsed_but_not_decoded() -> None:
    """The library's own writer: readable, but not the canonical encoding."""
    text = json.dumps(METADATA)
    other = safetensors.numpy.save({"b": ARRAYS["b"]}, {"lethe": text})
    arrays, metadata = parse_tensors(other)
    assert metadata == METADATA
    assert arrays["b"].tobytes() == ARRAYS["b"].tobytes()
    with pytest.raises(ArtifactError):
        decode_tensors(other)


@pytest.mark.parametrize(
    "offsets",
    [([0, 64], [0, 64]), ([0, 64], [63, 64]), ([8, 0], [0, 64]), ([-8, 0], [0, 64])],
)
def test_arrays_that_share_bytes_are_not_copied(
    offsets: tuple[list[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 arrays on the same 300 kB took 600 MB."""
    header: dict[str, Any] = {"__metadata__": {"lethe": "{}"}}
    for name, (first, last) in zip("ab", offsets, strict=True):
        size = max(0, last - first)
        header[name] = {"data_offsets": [first, last], "dtype": "U8", "shape": [size]}
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    data = len(text).to_bytes(8, "little") + text + bytes(64)
    copied, read = [], np.frombuffer

    def counted(part: bytes, kind: str) -> Any:
        copied.append(len(part))
        return read(part, kind)

    monkeypatch.setattr(np, "frombuffer", counted)
    with pytest.raises(ValueError, match="share bytes"):
        parse_tensors(data)
    assert sum(copied) <= 64
    with pytest.raises(ArtifactError):
        decode_tensors(data)
