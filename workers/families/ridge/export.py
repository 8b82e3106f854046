"""A ridge head for other programs: scores are features (n, d) times the head (d, classes).

The input is the extractor's features, unquantised, as in the held-out accuracy. Every export
multiplies in float64, so that all choose the class that Lethe chooses.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from workers.artifacts import decode_head
from workers.libraries import require

OPSET, IR = 20, 10  # of ONNX; onnxruntime reads these since 1.17


def to_onnx(head: NDArray[np.float64], classes: Sequence[str]) -> bytes:
    """Return a graph from `features` (n, d) float32 to `label` (n,) str and `scores`."""
    onnx = require("onnx", "export")
    h, kind = onnx.helper, onnx.TensorProto
    dimension, columns = head.shape
    nodes = [
        h.make_node("Cast", ["features"], ["wide"], to=kind.DOUBLE),
        h.make_node("MatMul", ["wide", "head"], ["scores"]),
        h.make_node("ArgMax", ["scores"], ["index"], axis=1, keepdims=0),
        h.make_node("Gather", ["classes", "index"], ["label"]),
    ]
    graph = h.make_graph(
        nodes,
        "ridge-head",
        [h.make_tensor_value_info("features", kind.FLOAT, ["rows", dimension])],
        [
            h.make_tensor_value_info("label", kind.STRING, ["rows"]),
            h.make_tensor_value_info("scores", kind.DOUBLE, ["rows", columns]),
        ],
        [
            onnx.numpy_helper.from_array(head, "head"),
            h.make_tensor("classes", kind.STRING, [columns], [one.encode() for one in classes]),
        ],
    )
    model = h.make_model(
        graph, opset_imports=[h.make_opsetid("", OPSET)], ir_version=IR, producer_name="lethe"
    )
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


def to_skops(head: NDArray[np.float64], classes: Sequence[str]) -> bytes:
    """Return a scikit-learn RidgeClassifier with these weights and no intercept."""
    skops, linear = require("skops.io", "export"), require("sklearn.linear_model", "export")
    names = np.array(classes)
    order = np.argsort(names)  # scikit-learn keeps classes sorted
    model = linear.RidgeClassifier(fit_intercept=False)
    # Fitting anything sets its classes; the weights are replaced afterwards.
    model.fit(np.zeros((len(names), len(head))), names)
    weights = head.T[order]
    model.coef_ = weights if len(names) > 2 else weights[1:] - weights[:1]
    model.intercept_ = 0.0
    data: bytes = skops.dumps(model)
    return data


def to_torch(head: NDArray[np.float64], classes: Sequence[str]) -> bytes:
    """Return a program of torch.export from features (n, d) float32 to scores (n, classes)."""
    torch = require("torch", "torch")

    class Head(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Parameter(torch.from_numpy(head), requires_grad=False)

        def forward(self, features):  # type: ignore[no-untyped-def]
            return features.double() @ self.head

    rows = {0: torch.export.Dim("rows")}
    example = torch.zeros(2, len(head))
    program = torch.export.export(Head(), (example,), dynamic_shapes=(rows,))
    stream = io.BytesIO()
    torch.export.save(program, stream)
    return stream.getvalue()


FORMATS: Mapping[str, Callable[[NDArray[np.float64], Sequence[str]], bytes]] = MappingProxyType(
    {"onnx": to_onnx, "skops": to_skops, "torch": to_torch}
)


def export(artifact: bytes, form: str, classes: Sequence[str]) -> bytes:
    """Return a head's file in another format, one of FORMATS.

    Raises:
        ArtifactError: It is not a head file.
        MissingLibraryError: The library of the format is not installed.
    """
    head, _ = decode_head(artifact)
    return FORMATS[form](head.astype(np.float64), classes)
