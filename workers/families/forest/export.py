"""A forest for other programs: an ONNX graph with thresholds in float64, as Lethe compares.

The code of a feature is at most bin b iff its value is at most edge b - 1, so a split by bins
is a split by a threshold. NaN has the lowest code and always goes left. Leaves hold whole
numbers whose sums stay below 2^24: exact in the float32 that ONNX sums in.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workers.errors import ArtifactError, RefusedError
from workers.libraries import require

if TYPE_CHECKING:  # it loads numba
    from lethe.estimators.forest.published import PublishedForest

OPSET, ML_OPSET, IR = 20, 3, 10  # of ONNX; onnxruntime reads these since 1.17
LEAF = -1
LIMB = 1024  # a mean target is two numbers in this base: each sums exactly
MOST_TREES = 2**24 // LIMB


def export(artifact: bytes, classes: Sequence[str], step: float | None) -> bytes:
    """Return the ONNX model of a forest's file, from `features` (n, d) float64.

    Outputs: `label` (n,) str and `probabilities` (n, classes) float64, or `value` (n,) float64
    for a forest whose targets are whole multiples of `step`.

    Raises:
        ArtifactError: It is not a forest's file.
        RefusedError: It has more trees than ONNX sums exactly.
        MissingLibraryError: A library is not installed.
    """
    onnx = require("onnx", "export")
    require("numba", "estimators")
    h, kind = onnx.helper, onnx.TensorProto
    forest = _read(artifact)
    if forest.config.trees > MOST_TREES:
        raise RefusedError(
            f"ONNX sums at most {MOST_TREES} trees exactly, and this forest has "
            f"{forest.config.trees}: download the native file"
        )
    ensemble = _ensemble(onnx, forest)
    nodes = [
        h.make_node(
            "TreeEnsembleRegressor", ["features"], ["float"], domain="ai.onnx.ml", **ensemble
        ),
        h.make_node("Cast", ["float"], ["sums"], to=kind.DOUBLE),
    ]
    if forest.config.classes:
        names = [one.encode() for one in classes]
        constants = [h.make_tensor("names", kind.STRING, [len(names)], names)]
        constants.append(onnx.numpy_helper.from_array(np.array([1], np.int64), "last"))
        nodes += [
            h.make_node("ReduceSum", ["sums", "last"], ["all"], keepdims=1),
            h.make_node("Div", ["sums", "all"], ["probabilities"]),
            h.make_node("ArgMax", ["sums"], ["index"], axis=1, keepdims=0),
            h.make_node("Gather", ["names", "index"], ["label"]),
        ]
        outputs = [
            h.make_tensor_value_info("label", kind.STRING, ["rows"]),
            h.make_tensor_value_info("probabilities", kind.DOUBLE, ["rows", len(names)]),
        ]
    else:
        arrays = {
            "base": np.array([LIMB, 1.0]),
            "trees": np.array(float(forest.config.trees)),
            "step": np.array(step or 1.0),
        }
        constants = [onnx.numpy_helper.from_array(one, name) for name, one in arrays.items()]
        nodes += [
            h.make_node("MatMul", ["sums", "base"], ["whole"]),
            h.make_node("Div", ["whole", "trees"], ["mean"]),
            h.make_node("Mul", ["mean", "step"], ["value"]),
        ]
        outputs = [h.make_tensor_value_info("value", kind.DOUBLE, ["rows"])]
    width = len(forest.config.bins.edges)
    inputs = [h.make_tensor_value_info("features", kind.DOUBLE, ["rows", width])]
    graph = h.make_graph(nodes, "forest", inputs, outputs, constants)
    versions = [h.make_opsetid("", OPSET), h.make_opsetid("ai.onnx.ml", ML_OPSET)]
    model = h.make_model(graph, opset_imports=versions, ir_version=IR, producer_name="lethe")
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


def _read(artifact: bytes) -> "PublishedForest":
    from lethe.estimators.errors import EstimatorInputError
    from lethe.estimators.forest.published import PublishedForest

    try:
        return PublishedForest.from_bytes(artifact)
    except EstimatorInputError as error:
        raise ArtifactError(str(error)) from None


def _ensemble(onnx: Any, forest: "PublishedForest") -> dict[str, Any]:
    """Return the attributes of TreeEnsembleRegressor: a leaf has a weight for each target."""
    sizes = forest.sizes.astype(np.int64)
    tree = np.repeat(np.arange(len(sizes)), sizes)
    node = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    inner = forest.feature != LEAF
    weights = forest.value.astype(np.float64)
    if not forest.config.classes:
        weights = np.concatenate([weights // LIMB, weights % LIMB], axis=1)
    leaves, targets = weights.shape
    tensor = onnx.numpy_helper.from_array
    return {
        "n_targets": targets,
        "nodes_treeids": tree.tolist(),
        "nodes_nodeids": node.tolist(),
        "nodes_featureids": np.maximum(forest.feature, 0).tolist(),
        "nodes_modes": np.where(inner, "BRANCH_LEQ", "LEAF").tolist(),
        "nodes_values_as_tensor": tensor(_thresholds(forest), "thresholds"),
        "nodes_missing_value_tracks_true": inner.astype(int).tolist(),
        "nodes_truenodeids": np.where(inner, node + 1, 0).tolist(),
        "nodes_falsenodeids": forest.right.tolist(),
        "target_treeids": np.repeat(tree[~inner], targets).tolist(),
        "target_nodeids": np.repeat(node[~inner], targets).tolist(),
        "target_ids": np.tile(np.arange(targets), leaves).tolist(),
        "target_weights_as_tensor": tensor(weights.ravel(), "weights"),
    }


def _thresholds(forest: "PublishedForest") -> NDArray[np.float64]:
    """Return each node's threshold: a row goes left up to that value; 0 for leaves."""
    found = np.zeros(len(forest.feature))
    for place in np.flatnonzero(forest.feature != LEAF):
        edges, bin_ = forest.config.bins.edges[forest.feature[place]], int(forest.bin[place])
        # Only NaN is below the first edge; everything is at or below the end.
        padded = -np.inf if bin_ == 0 else np.inf
        found[place] = edges[bin_ - 1] if 1 <= bin_ <= len(edges) else padded
    return found
