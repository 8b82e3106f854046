"""The trees of gradient boostings that compare float64, as one ONNX operator."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.errors import RefusedError

# Objectives of LightGBM whose raw score is the prediction, or determines the class.
PLAIN = frozenset(
    {"binary", "multiclass", "multiclassova", "regression", "regression_l1"}
    | {"huber", "fair", "quantile", "mape"}
)
NATIVE = "download the native file"


@dataclass(slots=True)
class Boosting:
    """Trees that each add to one score. start (k,): the initial scores.

    Nodes are tuples of tree, node, feature, threshold, left, right, whether NaN goes left;
    leaves of tree, node, score and weight.
    """

    start: NDArray[np.float64]
    nodes: list[tuple[int, int, int, float, int, int, bool]] = field(default_factory=list)
    leaves: list[tuple[int, int, int, float]] = field(default_factory=list)

    def attributes(self, onnx: Any) -> dict[str, Any]:
        """Return the attributes of TreeEnsembleRegressor 3, with float64 numbers."""
        rows = [(*one, "BRANCH_LEQ") for one in self.nodes]
        ends = {(tree, node) for tree, node, _, _ in self.leaves}
        rows += [(tree, node, 0, 0.0, 0, 0, False, "LEAF") for tree, node in ends]
        trees, nodes, features, values, left, right, missing, modes = zip(
            *sorted(rows), strict=True
        )
        tensor = onnx.numpy_helper.from_array
        leaf_trees, leaf_nodes, scores, weights = zip(*sorted(self.leaves), strict=True)
        return {
            "n_targets": len(self.start),
            "nodes_treeids": trees,
            "nodes_nodeids": nodes,
            "nodes_featureids": features,
            "nodes_modes": modes,
            "nodes_values_as_tensor": tensor(np.array(values, np.float64), "thresholds"),
            "nodes_missing_value_tracks_true": [int(one) for one in missing],
            "nodes_truenodeids": left,
            "nodes_falsenodeids": right,
            "target_treeids": leaf_trees,
            "target_nodeids": leaf_nodes,
            "target_ids": scores,
            "target_weights_as_tensor": tensor(np.array(weights, np.float64), "weights"),
        }


def histogram_trees(estimator: Any) -> Boosting:
    """Return the trees of a HistGradientBoosting. Raises RefusedError for some losses."""
    if estimator.loss not in ("log_loss", "squared_error", "absolute_error", "quantile"):
        raise RefusedError(f"the loss {estimator.loss} is not exported to ONNX: {NATIVE}")
    found = Boosting(np.ravel(estimator._baseline_prediction).astype(np.float64))
    trees = [(score, one) for stage in estimator._predictors for score, one in enumerate(stage)]
    for tree, (score, predictor) in enumerate(trees):
        for place, node in enumerate(predictor.nodes):
            if node["is_leaf"]:
                found.leaves.append((tree, place, score, float(node["value"])))
                continue
            found.nodes.append(
                (
                    tree,
                    place,
                    int(node["feature_idx"]),
                    float(node["num_threshold"]),
                    int(node["left"]),
                    int(node["right"]),
                    bool(node["missing_go_to_left"]),
                )
            )
    return found


def voting_trees(estimator: Any) -> Boosting:
    """Return the trees of a RandomForest or ExtraTrees classifier, which add probabilities.

    In float64 their sums tie where scikit-learn's do, if each leaf has one class.
    """
    found = Boosting(np.zeros(len(estimator.classes_)))
    for number, one in enumerate(estimator.estimators_):
        tree = one.tree_
        shares = tree.value[:, 0, :] / tree.value[:, 0, :].sum(axis=1, keepdims=True)
        for place in range(tree.node_count):
            if tree.children_left[place] < 0:
                found.leaves += [
                    (number, place, score, float(shares[place, score]))
                    for score in np.flatnonzero(shares[place]).tolist()
                ]
                continue
            found.nodes.append(
                (
                    number,
                    place,
                    int(tree.feature[place]),
                    float(tree.threshold[place]),
                    int(tree.children_left[place]),
                    int(tree.children_right[place]),
                    bool(tree.missing_go_to_left[place]),
                )
            )
    return found


def lightgbm_trees(estimator: Any) -> Boosting:
    """Return the trees of a LightGBM model. Raises RefusedError for unsupported features."""
    model = estimator.booster_.dump_model()
    objective = str(model["objective"]).split(" ")
    if objective[0] not in PLAIN or "sqrt" in objective or model.get("average_output"):
        raise RefusedError(f"LightGBM's {objective[0]} is not exported to ONNX: {NATIVE}")
    scores = int(model["num_tree_per_iteration"])
    found = Boosting(np.zeros(scores))
    for tree, one in enumerate(model["tree_info"]):
        _walk(found, tree, tree % scores, one["tree_structure"])
    return found


def _walk(found: Boosting, tree: int, score: int, root: Mapping[str, Any]) -> None:
    waiting, count = [(0, root)], 1
    while waiting:
        place, node = waiting.pop()
        if "leaf_value" in node:
            found.leaves.append((tree, place, score, float(node["leaf_value"])))
            continue
        if node["decision_type"] != "<=" or node["missing_type"] == "Zero":
            raise RefusedError(f"LightGBM's categories and zeros as missing: {NATIVE}")
        threshold = float(node["threshold"])
        # Without a missing type, NaN is read as 0.
        to_left = node["default_left"] if node["missing_type"] == "NaN" else threshold >= 0
        children = count, count + 1
        count += 2
        feature = int(node["split_feature"])
        found.nodes.append((tree, place, feature, threshold, *children, bool(to_left)))
        waiting += zip(children, (node["left_child"], node["right_child"]), strict=True)
