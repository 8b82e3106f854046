"""Ridge and naive Bayes for other programs: ONNX, and the estimators of scikit-learn.

All compute in float64, as Lethe does, and take float64 features.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from workers.errors import ArtifactError
from workers.libraries import require

if TYPE_CHECKING:
    from lethe.estimators.sums.published import PublishedBayes, PublishedRidge, PublishedSums

OPSET, IR = 20, 10  # of ONNX; onnxruntime reads these since 1.17


def to_onnx(model: "PublishedSums") -> bytes:
    """Return a graph from `features` (n, d) float64 to `label` (n,) str and `scores`.

    A regressor has `value` (n,) instead. Scores of naive Bayes are logarithms of joint
    probabilities.
    """
    onnx = require("onnx", "export")
    h, kind = onnx.helper, onnx.TensorProto
    constants: dict[str, Any]
    nodes, constants = _scores(model, h)
    given = [h.make_tensor_value_info("features", kind.DOUBLE, ["rows", model.columns])]
    tensors = [onnx.numpy_helper.from_array(one, name) for name, one in constants.items()]
    if model.classes:
        names = [text.encode() for _, text in model.classes]
        tensors.append(h.make_tensor("classes", kind.STRING, [len(names)], names))
        nodes += [
            h.make_node("ArgMax", ["scores"], ["index"], axis=1, keepdims=0),
            h.make_node("Gather", ["classes", "index"], ["label"]),
        ]
        found = [
            h.make_tensor_value_info("label", kind.STRING, ["rows"]),
            h.make_tensor_value_info("scores", kind.DOUBLE, ["rows", len(names)]),
        ]
    else:
        tensors.append(onnx.numpy_helper.from_array(np.array([1]), "second"))
        nodes.append(h.make_node("Squeeze", ["scores", "second"], ["value"]))
        found = [h.make_tensor_value_info("value", kind.DOUBLE, ["rows"])]
    graph = h.make_graph(nodes, model.kind, given, found, tensors)
    made = h.make_model(
        graph, opset_imports=[h.make_opsetid("", OPSET)], ir_version=IR, producer_name="lethe"
    )
    onnx.checker.check_model(made)
    data: bytes = made.SerializeToString()
    return data


def _scores(model: "PublishedSums", h: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return nodes from `features` to `scores`, and their constants."""
    from lethe.estimators.sums.published import PublishedBayes, PublishedRidge

    multiply = h.make_node("MatMul", ["features", "weights"], ["products"])
    add = h.make_node("Add", ["products", "offset"], ["scores"])
    if isinstance(model, PublishedRidge):
        return [multiply, add], {"weights": model.coef.T.copy(), "offset": model.intercept}
    assert isinstance(model, PublishedBayes)
    if model.kind == "multinomial-nb":
        weights = np.log(model.parts[0]).T.copy()
        return [multiply, add], {"weights": weights, "offset": model.log_prior}
    means, variances = model.parts
    # (n, 1, d) minus (classes, d); squares over variances are summed over features.
    nodes = [
        h.make_node("Unsqueeze", ["features", "second"], ["each"]),
        h.make_node("Sub", ["each", "means"], ["less"]),
        h.make_node("Mul", ["less", "less"], ["squares"]),
        h.make_node("Div", ["squares", "variances"], ["parts"]),
        h.make_node("ReduceSum", ["parts", "last"], ["sums"], keepdims=0),
        h.make_node("Mul", ["sums", "half"], ["products"]),
        add,
    ]
    logarithms = -0.5 * np.log(2 * np.pi * variances).sum(axis=1)
    return nodes, {
        "second": np.array([1]),
        "last": np.array([2]),
        "half": np.array(-0.5),
        "means": means,
        "variances": variances,
        "offset": model.log_prior + logarithms,
    }


def to_skops(model: "PublishedSums") -> bytes:
    """Return scikit-learn's Ridge, RidgeClassifier, GaussianNB or MultinomialNB."""
    from lethe.estimators.sums.published import PublishedBayes, PublishedRidge

    skops = require("skops.io", "export")
    if isinstance(model, PublishedRidge):
        made = _ridge(model)
    else:
        assert isinstance(model, PublishedBayes)
        made = _bayes(model)
    made.n_features_in_ = model.columns
    data: bytes = skops.dumps(made)
    return data


def _ridge(model: "PublishedRidge") -> Any:
    linear = require("sklearn.linear_model", "export")
    if not model.classes:
        made = linear.Ridge()
        made.coef_, made.intercept_ = model.coef[0], float(model.intercept[0])
        return made
    names = np.array([text for _, text in model.classes])
    order = np.argsort(names)  # scikit-learn keeps classes sorted
    made = linear.RidgeClassifier()
    # Fitting anything sets its classes; the weights are replaced afterwards.
    made.fit(np.zeros((len(names), model.coef.shape[1])), names)
    coef, intercept = model.coef[order], model.intercept[order]
    if len(names) == 2:
        coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
    made.coef_, made.intercept_ = coef, intercept
    return made


def _bayes(model: "PublishedBayes") -> Any:
    bayes = require("sklearn.naive_bayes", "export")
    names = np.array([text for _, text in model.classes])
    order = np.argsort(names)
    parts = [one[order] for one in model.parts]
    if model.kind == "gaussian-nb":
        made = bayes.GaussianNB()
        made.theta_, made.var_ = parts
        made.class_prior_ = model.prior[order]
    else:
        made = bayes.MultinomialNB()
        made.feature_log_prob_ = np.log(parts[0])
        made.class_log_prior_ = model.log_prior[order]
    made.classes_ = names[order]
    return made


FORMATS: Mapping[str, Callable[["PublishedSums"], bytes]] = MappingProxyType(
    {"onnx": to_onnx, "skops": to_skops}
)


def export(artifact: bytes, form: str) -> bytes:
    """Return a model's file in another format, one of FORMATS.

    Raises:
        ArtifactError: It is not a file of these models.
        MissingLibraryError: The library of the format is not installed.
    """
    from lethe.estimators.errors import EstimatorInputError
    from lethe.estimators.sums.published import read_published

    try:
        return FORMATS[form](read_published(artifact))
    except EstimatorInputError as error:
        raise ArtifactError(str(error)) from None
