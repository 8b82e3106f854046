"""Files that programs write: read with care, or refused."""

import json
import re
import struct
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save
from safetensors.torch import save as save_torch

from workers.errors import RefusedError
from workers.training.programs.outputs import OutputError, difference, numbers, read
from workers.training.programs.program import PINNED, parse_lock


def file(header: Any, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


ONE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
VALUES = np.array([1.0, 2.0], np.float32).tobytes()


def test_what_the_library_writes_is_read() -> None:
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True]), "c": np.zeros((0, 4))}
    found = numbers(save(arrays, metadata={"made": "by a test"}), "safetensors")
    assert found.keys() == arrays.keys()
    assert all(np.array_equal(found[name], arrays[name]) for name in arrays)
    half = torch.tensor([1.5, -2.25], dtype=torch.bfloat16)
    assert read(save_torch({"h": half}), "safetensors")["h"].tolist() == [1.5, -2.25]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00" * 7,
        struct.pack("<Q", 1 << 62) + b"{}",
        file(b"{"),
        file([1]),
        file({"a": 1}),
        file({"a": {**ONE, "dtype": "F31"}}, VALUES),
        file({"a": {**ONE, "shape": [3]}}, VALUES),
        file({"a": {**ONE, "shape": [-1, -2]}}, VALUES),
        file({"a": {**ONE, "shape": [2.0]}}, VALUES),
        file({"a": {**ONE, "shape": [1 << 63, 0]}}, VALUES),
        file({"a": {**ONE, "data_offsets": [0, 8, 8]}}, VALUES),
        file({"a": {**ONE, "data_offsets": [8, 16]}}, VALUES * 2),
        file({"a": ONE, "b": ONE}, VALUES),
        file({"a": ONE}, VALUES + b"x"),
        file({"a": ONE}, VALUES[:-1]),
        file({"a": ONE, "__metadata__": {"x": 1}}, VALUES),
        file(b'{"a": %s, "a": %s}' % ((json.dumps(ONE).encode(),) * 2), VALUES),
        file({}),
        file({"a": ONE}, np.array([1.0, np.nan], np.float32).tobytes()),
        file({"a": ONE}, np.array([1.0, np.inf], np.float32).tobytes()),
    ],
)
def test_what_is_no_safetensors_file_is_refused(data: bytes) -> None:
    with pytest.raises(OutputError):
        read(data, "safetensors")


def onnx_file(**changes: Any) -> Any:
    weights = numpy_helper.from_array(np.array([[1.0], [2.0]]), "w")
    graph = helper.make_graph(
        [helper.make_node(changes.get("node", "MatMul"), ["x", "w"], ["y"])],
        "line",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [None, 2])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, [None, 1])],
        [weights],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])


def test_onnx_is_checked_and_keeps_all_in_one_file() -> None:
    (found,) = numbers(onnx_file().SerializeToString(), "onnx").values()
    assert found.tolist() == [[1.0], [2.0]]
    outside = onnx_file()
    tensor = outside.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    with pytest.raises(OutputError, match="refers to other files"):
        read(outside.SerializeToString(), "onnx")
    inner = onnx_file()
    inner.graph.node[0].attribute.append(helper.make_attribute("t", tensor))
    with pytest.raises(OutputError, match="refers to other files"):
        read(inner.SerializeToString(), "onnx")
    for data in (onnx_file(node="NoSuchNode").SerializeToString(), b"\x08", b"", VALUES):
        with pytest.raises(OutputError):
            read(data, "onnx")


def test_the_difference_is_relative_to_each_tensor() -> None:
    first = {"large": np.array([1e6, 1.0]), "small": np.array([1e-6])}
    moved = {"large": np.array([1e6, 2.0]), "small": np.array([1.5e-6])}
    assert difference(first, first) == 0
    assert difference(first, moved) == pytest.approx(1 / 3)  # the small one is not hidden
    zeros = {"large": np.zeros(2), "small": np.zeros(1)}
    assert difference(zeros, zeros) == 0
    assert difference(first, zeros) == 1
    with pytest.raises(OutputError):
        difference(first, {"large": first["large"]})


def test_a_lock_file_is_names_and_versions() -> None:
    text = (
        "# by pip-compile\nNumPy==2.0.1 ; python_version > '3' \\\n    --hash=sha256:00\n"
        "torch[opt] == 2.1.0+cpu\n\nruamel.yaml==0.18\n"
    )
    assert parse_lock(text, "lock") == {
        "numpy": "2.0.1",
        "ruamel-yaml": "0.18",
        "torch": "2.1.0+cpu",
    }
    for line in (
        "numpy",
        "numpy>=2",
        "-r other.txt",
        "git+https://x/y",
        "numpy==",
        "a==1 b==2",
    ):
        with pytest.raises(RefusedError, match="lock, line 2: must be NAME==VERSION"):
            parse_lock(f"x==1\n{line}\n", "lock")


def test_spaces_in_a_lock_file_are_read_once() -> None:
    """Two patterns of spaces with something optional between share them in n² ways."""
    required = re.sub(r"\(\?:[^()]*\)\?", "", PINNED.pattern)
    assert r"\s*\s*" not in required
    text = "a [x, y]  ==  1.0 ; python_version > '3'\nb  == 2"
    assert parse_lock(text, "lock") == {"a": "1.0", "b": "2"}
