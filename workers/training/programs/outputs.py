"""A program's output file: checked byte by byte, and its tensors by name.

The file is hostile until it is read. This process has no limit of its own for it, so what a
file holds is counted before it is parsed, and numbers are converted and compared in blocks:
reading takes a few times the file's bytes, and less than a minute.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.errors import RefusedError
from workers.libraries import require
from workers.training.programs import wire

MOST_HEADER = 16 << 20
MOST_BRACKETS = 1 << 20  # of a header; a tensor has three, and notes may have some
MOST_IMPORTS = 1 << 20  # onnx.checker takes a minute for 2^28 functions times domains
BLOCK = 1 << 20  # numbers that are converted at once
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
        if values.dtype.kind == "f" and not all(
            np.isfinite(block).all() for block in _blocks(values)
        ):
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
        if rest.count(b"{") + rest.count(b"[") > MOST_BRACKETS:
            raise ValueError("brackets")
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
        if kind == "|b1" and values.view("u1").max(initial=0) > 1:  # else any byte is true
            raise ValueError("truth")
        if entry["dtype"] == "BF16":
            wide = values.astype("<u4")
            wide <<= 16
            values = wide.view("<f4")
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
        wire.count(data, onnx.ModelProto.DESCRIPTOR)
    except wire.WireError as error:
        raise OutputError(
            f"the program's file is not a valid ONNX model, or too large a one: {error}. Check "
            "it with onnx.checker, or write safetensors"
        ) from None
    try:
        model = onnx.load_model_from_string(data)
        sets = [*model.opset_import, *(s for one in model.functions for s in one.opset_import)]
        if len(model.functions) * len({one.domain for one in sets}) > MOST_IMPORTS:
            raise OutputError(
                "the program's ONNX file imports too many operator sets for its number "
                "of functions: inline the functions and export again"
            )
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
    onnx = require("onnx", "export")
    if isinstance(message, onnx.AttributeProto):
        name = {message.FLOAT: "f", message.FLOATS: "floats"}.get(message.type)
        held = None
        if name == "f":
            held = np.array(message.f, np.float32)
        elif name == "floats":
            held = np.fromiter(message.floats, np.float32, len(message.floats))
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
            values = _values(inner)
            tensors[f"{inside} {inner.name}"] = values
            if (numeric := _numeric_field(inner, values)) is not None:
                inner.ClearField(numeric)


def _values(tensor: Any) -> NDArray[Any]:
    """Return a TensorProto's values as numpy_helper.to_array does, in blocks if they are many.

    It makes an object of Python for each number, and texts as long as the longest of all.
    """
    onnx, helper = require("onnx", "export"), require("onnx.helper", "export")
    to_array = require("onnx.numpy_helper", "export").to_array
    if len(tensor.dims) > MOST_DIMENSIONS:
        raise OutputError(
            f"a tensor of the program's file has more than {MOST_DIMENSIONS} "
            "dimensions: flatten it"
        )
    field = helper.tensor_dtype_to_field(tensor.data_type)
    stored = getattr(tensor, field)
    if tensor.data_type == tensor.STRING:
        texts = np.empty(len(stored), object)
        texts[:] = [text.decode() for text in stored]
        return texts.reshape(tensor.dims)
    if tensor.HasField("raw_data") or len(stored) <= BLOCK:
        found: NDArray[Any] = to_array(tensor)
        return found
    each = 2 if tensor.data_type in (tensor.COMPLEX64, tensor.COMPLEX128) else 1
    if len(stored) != each * math.prod(tensor.dims):
        raise OutputError(
            "a large tensor of the program's file is packed: store it as raw data"
        )
    values: NDArray[Any] | None = None
    for first in range(0, len(stored), BLOCK):
        numbers = stored[first : first + BLOCK]
        shape = [len(numbers) // each]
        part = onnx.TensorProto(data_type=tensor.data_type, dims=shape, **{field: numbers})
        block = to_array(part)
        if values is None:
            values = np.empty(len(stored) // each, block.dtype)
        values[first // each : first // each + len(block)] = block
    assert values is not None  # there is more than one block
    return values.reshape(tensor.dims)


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
        kind = np.int32 if field == "int32_data" else np.uint64
        written = getattr(tensor, field)
        if not np.array_equal(np.fromiter(written, kind, len(written)), stored.ravel()):
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
            raise OutputError("a tensor of the program's file is complex: write real numbers")
        both = values, second[name]
        scale = max(_largest(one) for one in both)
        if not scale:
            continue
        for one, other in zip(*(_blocks(each) for each in both), strict=True):
            apart = np.abs(one.astype(np.float64) / scale - other.astype(np.float64) / scale)
            most = max(most, float(apart.max()))
    return most


def _largest(values: NDArray[Any]) -> float:
    blocks = (np.abs(block.astype(np.float64)) for block in _blocks(values))
    return max((float(block.max()) for block in blocks), default=0.0)


def _blocks(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield the numbers in parts, of which each may be converted and copied."""
    flat = values.reshape(-1)
    for first in range(0, flat.size, BLOCK):
        yield flat[first : first + BLOCK]
