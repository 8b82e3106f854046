"""A program's output file: checked byte by byte, and its tensors by name."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.errors import RefusedError
from workers.libraries import require

MOST_HEADER = 16 << 20
MOST_DIMENSIONS = 64  # numpy's; the product of thousands takes hours, past a run's time limit
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


NOTHING = np.zeros(0, np.uint8)
Numbers = tuple[dict[str, NDArray[Any]], bytes]  # by name, and the file without them


class OutputError(RefusedError):
    """The program's output is not a model. The message says why and quotes nothing."""


def read(data: bytes, form: str) -> dict[str, NDArray[Any]]:
    """Return the numbers of a file by name; form: safetensors or onnx.

    The rest of the file has no tolerance: an empty array whose name contains its digest
    represents it, so files that differ there have different names. It is every byte that the
    numbers do not determine, except the order of a safetensors file's metadata, which its
    library writes at random. Raises OutputError for another form, no tensor, a NaN or an
    infinity, or references to other files.
    """
    found, rest = _parsed(data, form)
    return {**found, f"all else, sha256 {hashlib.sha256(rest).hexdigest()}": NOTHING}


def numbers(data: bytes, form: str) -> dict[str, NDArray[Any]]:
    """Return only the numbers, to measure the distance of models. Raises as `read`."""
    return _parsed(data, form)[0]


def _parsed(data: bytes, form: str) -> Numbers:
    found, rest = _onnx(data) if form == "onnx" else _safetensors(data)
    if not found:
        raise OutputError("the program's file holds no tensor: write the weights into it")
    for values in found.values():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise OutputError(
                "the program's file holds a NaN or an infinity: the training failed"
            )
    return found, rest


def _safetensors(data: bytes) -> Numbers:
    """Parse <https://github.com/huggingface/safetensors#format>, refusing extra bytes."""
    try:
        size = int.from_bytes(data[:8], "little")
        if not 2 <= size <= min(MOST_HEADER, len(data) - 8):
            raise ValueError("header")
        rest = data[8 : 8 + size]
        header = json.loads(rest.decode(), object_pairs_hook=_once)
        plain = _compact(header)
        notes = header.get("__metadata__", {})
        if any(not isinstance(text, str) for text in notes.values()):
            raise ValueError("metadata")
        if rest == plain.ljust(-(-len(plain) // 8) * 8):  # as the library writes it
            rest = _compact({**header, "__metadata__": dict(sorted(notes.items()))})
        header.pop("__metadata__", None)
        return dict(_tensors(header, memoryview(data)[8 + size :])), rest
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError):
        raise OutputError(
            "the program's file is not a safetensors file: write it with safetensors.save_file"
        ) from None


def _compact(header: Mapping[str, Any]) -> bytes:
    return json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()


def _tensors(header: Mapping[str, Any], body: memoryview) -> Iterator[tuple[str, NDArray[Any]]]:
    end = 0
    entries = sorted(header.items(), key=lambda item: tuple(item[1]["data_offsets"]))
    for name, entry in entries:
        kind, width = DTYPES[entry["dtype"]]
        first, last = entry["data_offsets"]
        shape = entry["shape"]
        if any(type(one) is not int or one < 0 for one in (first, last, *shape)):
            raise ValueError("numbers")
        if len(shape) > MOST_DIMENSIONS:
            raise ValueError("dimensions")
        count = 1
        for one in shape:
            count *= one
        if first != end or last - first != count * width or last > len(body):
            raise ValueError("offsets")
        end = last
        values = np.frombuffer(body[first:last], kind)
        if kind == "|b1" and (values.view("u1") > 1).any():  # else any byte is true
            raise ValueError("truth")
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


def _onnx(data: bytes) -> Numbers:
    onnx = require("onnx", "export")
    checker = require("onnx.checker", "export")
    try:
        model = onnx.load_model_from_string(data)
        # What a parser skips, such as all but the last of a field, is not written again.
        whole = model.SerializeToString(deterministic=True) == data
        tensors: dict[str, NDArray[Any]] = {}
        floats: dict[str, NDArray[Any]] = {}
        _take(model, "", tensors, floats)
        checker.check_model(data)
        rest: bytes = model.SerializeToString(deterministic=True) if whole else data
    except OutputError:
        raise
    except Exception:  # protobuf's and the checker's own; their texts quote the file
        raise OutputError(
            "the program's file is not a valid ONNX model: check it with onnx.checker"
        ) from None
    return ({**tensors, **floats} if tensors else {}), rest


def _take(
    message: Any,
    path: str,
    tensors: dict[str, NDArray[Any]],
    floats: dict[str, NDArray[Any]],
) -> None:
    """Move all tensors and attribute floats out of a message, at any depth.

    Functions, sparse tensors and the attributes of linear models and trees have weights too.
    Floats that are not finite stay: an operator may take NaN for a missing value.
    """
    onnx, numpy_helper = require("onnx", "export"), require("onnx.numpy_helper", "export")
    if isinstance(message, onnx.AttributeProto):
        name = {message.FLOAT: "f", message.FLOATS: "floats"}.get(message.type)
        held = None if name is None else np.array(getattr(message, name), np.float32)
        if held is not None and np.isfinite(held).all():
            floats[f"{path}.{name}"] = held
            message.ClearField(name)
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for place, inner in enumerate([value] if hasattr(value, "ListFields") else value):
            inside = f"{path}.{field.name}[{place}]"
            if not isinstance(inner, onnx.TensorProto):
                _take(inner, inside, tensors, floats)
                continue
            if inner.data_location or inner.external_data:
                raise OutputError(
                    "the program's ONNX file refers to other files: save all in one"
                )
            values = numpy_helper.to_array(inner)
            tensors[f"{inside} {inner.name}"] = values
            if (numeric := _numeric_field(inner, values)) is not None:
                inner.ClearField(numeric)


def _numeric_field(tensor: Any, values: NDArray[Any]) -> str | None:
    """Return the only field that holds a TensorProto's values, if they determine its bytes.

    Other fields stay: names, texts, a second field of values, what this library does not know.
    """
    if values.dtype.kind not in "fiub":
        return None
    if tensor.HasField("raw_data"):
        truths = values.dtype.kind == "b"
        return None if truths and (values.view(np.uint8) > 1).any() else "raw_data"
    field: str = require("onnx.helper", "export").tensor_dtype_to_field(tensor.data_type)
    if field in ("int32_data", "uint64_data"):  # wider than some of the types that they hold
        stored = values.view(np.uint16) if values.dtype == np.float16 else values
        if not np.array_equal(np.array(getattr(tensor, field)), stored.ravel()):
            return None
    return field


def difference(first: Mapping[str, NDArray[Any]], second: Mapping[str, NDArray[Any]]) -> float:
    """Return the largest relative difference of a tensor: max|a - b| / max(|a|, |b|).

    Raises OutputError if names, types, shapes or the rest of the files differ.
    """
    layout = [{n: (v.dtype, v.shape) for n, v in one.items()} for one in (first, second)]
    if layout[0] != layout[1]:
        raise OutputError(
            "two runs write tensors of other names, types or shapes, or differ beside them"
        )
    most = 0.0
    for name, values in first.items():
        if values.dtype.kind not in "fiub":
            raise OutputError("a tensor is not of numbers")
        one, other = values.astype(np.float64), second[name].astype(np.float64)
        if one.size and (scale := max(np.abs(one).max(), np.abs(other).max())):
            most = max(most, float((np.abs(one / scale - other / scale)).max()))
    return most
