"""The file that a program wrote: checked byte by byte, and its tensors by name."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.errors import RefusedError
from workers.libraries import require

MOST_HEADER = 16 << 20
DTYPES: Mapping[str, tuple[str, int]] = {
    "BOOL": ("|b1", 1),
    "U8": ("|u1", 1),
    "I8": ("|i1", 1),
    "U16": ("<u2", 2),
    "I16": ("<i2", 2),
    "F16": ("<f2", 2),
    "BF16": ("<u2", 2),  # the upper half of a float32
    "U32": ("<u4", 4),
    "I32": ("<i4", 4),
    "F32": ("<f4", 4),
    "U64": ("<u8", 8),
    "I64": ("<i8", 8),
    "F64": ("<f8", 8),
}


class OutputError(RefusedError):
    """The file that a program wrote is no model. The message says why, and quotes nothing."""


def read(data: bytes, form: str) -> dict[str, NDArray[Any]]:
    """Return the tensors of a file of a form, safetensors or onnx, by name.

    Raises:
        OutputError: It is of another form, holds no tensor, a NaN or an infinity, or refers to
            other files.
    """
    found = _onnx(data) if form == "onnx" else _safetensors(data)
    if not found:
        raise OutputError("the program's file holds no tensor: write the weights into it")
    for values in found.values():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise OutputError(
                "the program's file holds a NaN or an infinity: the training failed"
            )
    return found


def _safetensors(data: bytes) -> dict[str, NDArray[Any]]:
    """Parse <https://github.com/huggingface/safetensors#format>, with no byte left over."""
    try:
        return dict(_tensors(data))
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError):
        raise OutputError(
            "the program's file is not a safetensors file: write it with safetensors.save_file"
        ) from None


def _tensors(data: bytes) -> Iterator[tuple[str, NDArray[Any]]]:
    size = int.from_bytes(data[:8], "little")
    if not 2 <= size <= min(MOST_HEADER, len(data) - 8):
        raise ValueError("header")
    header = json.loads(data[8 : 8 + size].decode(), object_pairs_hook=_once)
    notes = header.pop("__metadata__", {})
    if any(not isinstance(text, str) for text in notes.values()):
        raise ValueError("metadata")
    body, end = memoryview(data)[8 + size :], 0
    entries = sorted(header.items(), key=lambda item: tuple(item[1]["data_offsets"]))
    for name, entry in entries:
        kind, width = DTYPES[entry["dtype"]]
        first, last = entry["data_offsets"]
        shape = entry["shape"]
        if any(type(one) is not int or one < 0 for one in (first, last, *shape)):
            raise ValueError("numbers")
        count = 1
        for one in shape:
            count *= one
        if first != end or last - first != count * width or last > len(body):
            raise ValueError("offsets")
        end = last
        values = np.frombuffer(body[first:last], kind)
        if entry["dtype"] == "BF16":
            values = (values.astype("<u4") << 16).view("<f4")
        yield name, values.reshape(shape)
    if end != len(body):
        raise ValueError("rest")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name twice")
    return found


def _onnx(data: bytes) -> dict[str, NDArray[Any]]:
    onnx = require("onnx", "export")
    numpy_helper = require("onnx.numpy_helper", "export")
    checker = require("onnx.checker", "export")
    try:
        model = onnx.load_model_from_string(data)
        graphs = list(_graphs(model.graph))
        tensors = [one for graph in graphs for one in _constants(graph)]
        if any(one.data_location or one.external_data for one in tensors):
            raise OutputError("the program's ONNX file refers to other files: save all in one")
        checker.check_model(data)
        return {
            f"{place} {one.name}": numpy_helper.to_array(one)
            for place, one in enumerate(tensors)
        }
    except OutputError:
        raise
    except Exception:  # protobuf's and the checker's own; their texts quote the file
        raise OutputError(
            "the program's file is not a valid ONNX model: check it with onnx.checker"
        ) from None


def _graphs(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node or inner.initializer:
                    yield from _graphs(inner)


def _constants(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def difference(first: Mapping[str, NDArray[Any]], second: Mapping[str, NDArray[Any]]) -> float:
    """Return the largest relative difference of a tensor: max|a - b| / max(|a|, |b|).

    Raises:
        OutputError: They are not of the same names, types and shapes.
    """
    layout = [{n: (v.dtype, v.shape) for n, v in one.items()} for one in (first, second)]
    if layout[0] != layout[1]:
        raise OutputError("two runs write tensors of other names, types or shapes")
    most = 0.0
    for name, values in first.items():
        if values.dtype.kind not in "fiub":
            raise OutputError("a tensor is not of numbers")
        one, other = values.astype(np.float64), second[name].astype(np.float64)
        if one.size and (scale := max(np.abs(one).max(), np.abs(other).max())):
            most = max(most, float((np.abs(one / scale - other / scale)).max()))
    return most
