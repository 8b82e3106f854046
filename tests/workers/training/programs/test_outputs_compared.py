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
