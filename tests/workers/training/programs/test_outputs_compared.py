"""Files that a program of an operator writes, with bytes that no honest program would write."""

import json
import time
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save

from workers.training.programs import outputs
from workers.training.programs.outputs import OutputError

ONE = numpy_helper.from_array(np.ones(2, np.float32), "one")


def linear(
    *coefficients: float, intercept: float = 0.0, labels: tuple[int, int] = (0, 1)
) -> Any:
    """Return a node whose weights are attributes, beside a model that has a tensor too."""
    return helper.make_node(
        "LinearClassifier",
        ["x"],
        ["y", "scores"],
        domain="ai.onnx.ml",
        coefficients=list(map(float, coefficients)),
        intercepts=[0.0, intercept],
        classlabels_ints=labels,
    )


def model(node: Any, functions: Any = (), domain: str = "ai.onnx.ml") -> bytes:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [None])
    graph = helper.make_graph([node], "g", [x], [y], [ONE])
    sets = [helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)]
    made = helper.make_model(graph, opset_imports=sets, functions=functions)
    return bytes(made.SerializeToString())


def own_function(weights: Any) -> bytes:
    """Return a model whose weights are a constant of a function."""
    nodes = [
        helper.make_node("Constant", [], ["w"], value=weights),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    sets = [helper.make_opsetid("", 18)]
    function = helper.make_function("own", "scored", ["x"], ["y"], nodes, sets)
    call = helper.make_node("scored", ["x"], ["y"], domain="own")
    return model(call, [function], "own")


def found(first: bytes, second: bytes, form: str = "onnx") -> float:
    return outputs.difference(outputs.read(first, form), outputs.read(second, form))


def test_weights_in_attributes_are_compared() -> None:
    """Otherwise a program that trains at random gets certificates of agreeing runs."""
    assert found(model(linear(1, 2, 3, 4)), model(linear(1, 2, 3, 4))) == 0
    assert found(model(linear(1, 2, 3, 4)), model(linear(1, 2, 3, -4))) == 2
    assert found(model(linear(1, 2, 3, 4)), model(linear(1, 2, 3, 4.004))) < 2e-3


def test_weights_in_functions_are_compared() -> None:
    weights = [
        numpy_helper.from_array(np.array([[one], [2]], np.float32), "w") for one in (1, -2)
    ]
    assert found(own_function(weights[0]), own_function(weights[1])) == 1.5


@pytest.mark.parametrize(
    "other", [linear(1, 2, 3, 4, labels=(1, 0)), linear(1, 2, 3, 4, intercept=float("nan"))]
)
def test_what_else_differs_has_no_tolerance(other: Any) -> None:
    with pytest.raises(OutputError, match="differ beside them"):
        found(model(linear(1, 2, 3, 4)), model(other))


def test_notes_have_no_tolerance() -> None:
    tensors = {"w": np.ones(2)}
    with pytest.raises(OutputError, match="differ beside them"):
        found(
            save(tensors, {"weights": "1 2"}), save(tensors, {"weights": "3 4"}), "safetensors"
        )


def test_a_function_may_not_refer_to_another_file() -> None:
    outside = numpy_helper.from_array(np.array([[1], [2]], np.float32), "w")
    outside.data_location = TensorProto.EXTERNAL
    outside.external_data.add(key="location", value="/etc/passwd")
    with pytest.raises(OutputError, match="refers to other files"):
        outputs.read(own_function(outside), "onnx")
    onnx.checker.check_model(own_function(numpy_helper.from_array(np.ones((2, 1)), "w")))


def test_a_shape_of_many_dimensions_takes_no_time() -> None:
    """Their product took 7 s for this header, hours for the largest, in the worker itself."""
    shape = {"w": {"dtype": "F32", "shape": [9] * 300_000, "data_offsets": [0, 4]}}
    header = json.dumps(shape).encode()
    started = time.process_time()
    with pytest.raises(OutputError, match="is not a safetensors file"):
        outputs.read(len(header).to_bytes(8, "little") + header + bytes(4), "safetensors")
    assert time.process_time() - started < 2


def unlike(first: bytes, second: bytes, form: str) -> bool:
    """Return whether the files differ in more than their numbers, and both can be read."""
    one, other = (outputs.read(data, form).keys() for data in (first, second))
    return one != other


def headed(header: bytes, data: bytes) -> bytes:
    """Return a safetensors file with another header."""
    size = int.from_bytes(data[:8], "little")
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.rstrip() + b" \t\t \t   ",
        lambda header: header.rstrip() + b" " * 16,
        lambda header: header.replace(b":", b": "),
        lambda header: header.replace(b"F64", b"\\u0046\\u00364"),
        lambda header: header.replace(b"F64", b"F\\u00364"),
        lambda header: header.replace(b'"dtype"', b'"row":[2.5,1],"dtype"'),
        lambda header: header.replace(b"[0,16]", b"[-0,16]"),
    ],
)
def test_no_byte_of_a_safetensors_header_has_tolerance(change: Any) -> None:
    """Otherwise a cheating worker's file can have the erased row there, verbatim."""
    honest = save({"w": np.ones(2)}, {"note": "1"})
    header = honest[8 : 8 + int.from_bytes(honest[:8], "little")]
    assert change(header) != header
    assert unlike(honest, headed(change(header), honest), "safetensors")


def test_the_order_of_notes_is_the_librarys() -> None:
    """Its hash map writes them in another order in each process."""
    honest = save({"w": np.ones(2)})
    tensor = b'"w":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}'
    one, other = (
        headed(b'{"__metadata__":{%s},%s}' % (notes, tensor), honest)
        for notes in (b'"a":"1","b":"2"', b'"b":"2","a":"1"')
    )
    assert int.from_bytes(one[:8], "little") % 8 == 0
    assert found(one, other, "safetensors") == 0


def test_a_truth_is_one_bit() -> None:
    honest = save({"w": np.ones(8, bool)})
    with pytest.raises(OutputError):
        outputs.read(honest[:-8] + b"Jane Doe", "safetensors")


def initialised(change: Any = lambda tensor: None, tensor: Any = ONE) -> bytes:
    made = onnx.load_model_from_string(model(linear(1, 2, 3, 4)))
    made.graph.initializer[0].CopyFrom(tensor)
    change(made.graph.initializer[0])
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())


def unknown(tensor: Any) -> None:
    tensor.MergeFromString(b"\xfa\x3e\x08Jane Doe")  # field 1007, which ONNX does not have


TYPED = helper.make_tensor("one", TensorProto.FLOAT, [2], [1, 1])
TRUTHS = numpy_helper.from_array(np.ones(8, bool), "one")
BYTES = helper.make_tensor("one", TensorProto.UINT8, [2], [1, 1])
HALVES = helper.make_tensor("one", TensorProto.FLOAT16, [2], [1, 1])
TEXTS = numpy_helper.from_array(np.array(["1.5"], object), "one")


@pytest.mark.parametrize(
    ("tensor", "change"),
    [
        (ONE, lambda tensor: setattr(tensor, "doc_string", "Jane Doe")),
        (ONE, lambda tensor: tensor.metadata_props.add(key="row", value="Jane Doe")),
        (ONE, unknown),
        (TYPED, unknown),
        (TRUTHS, lambda tensor: setattr(tensor, "raw_data", b"Jane Doe")),
        (BYTES, lambda tensor: tensor.int32_data.__setitem__(0, 0x4A616E01)),
        (HALVES, lambda tensor: tensor.int32_data.__setitem__(0, 0x4A613C00)),
        (TEXTS, lambda tensor: tensor.string_data.__setitem__(0, b"1.5 \t")),
    ],
)
def test_of_an_onnx_tensor_only_the_numbers_have_tolerance(tensor: Any, change: Any) -> None:
    assert unlike(initialised(tensor=tensor), initialised(change, tensor), "onnx")


def test_numbers_in_each_field_of_onnx_have_tolerance() -> None:
    for kind in ("FLOAT", "DOUBLE", "FLOAT16", "INT8", "UINT8", "INT32", "INT64", "UINT32"):
        for raw in (False, True):
            number = getattr(TensorProto, kind)
            files = []
            for value in (100, 101):
                values = np.array([value, 1], helper.tensor_dtype_to_np_dtype(number))
                data = values.tobytes() if raw else values.tolist()
                tensor = helper.make_tensor("one", number, [2], data, raw=raw)
                files.append(initialised(tensor=tensor))
            assert found(files[0], files[1]) == pytest.approx(1 / 101, rel=1e-3), kind


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"\x32\x08Jane Doe" + data,  # doc_string, of which the last one counts
        lambda data: b"\x08\x8e\x80\x00" + data.removeprefix(b"\x08\x0e"),
        lambda data: data + b"\xfa\x3e\x08Jane Doe",
    ],
)
def test_what_a_parser_of_onnx_skips_has_no_tolerance(change: Any) -> None:
    made = onnx.load_model_from_string(model(linear(1, 2, 3, 4)))
    made.doc_string, made.ir_version = "scores", 14
    honest = made.SerializeToString()
    assert unlike(honest, change(honest), "onnx")
    assert not unlike(honest, made.SerializeToString(deterministic=True), "onnx")
