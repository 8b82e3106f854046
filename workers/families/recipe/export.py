"""A recipe's model for other programs: ONNX that compares and sums as the libraries do.

Rows are float32, as in the other exports. Transformers and linear models continue in float64;
trees of scikit-learn and XGBoost get the float32 that they compare, those of LightGBM and
HistGradientBoosting the float64. Steps that skl2onnx and onnxmltools would convert to something
different are built here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workers.errors import RefusedError
from workers.families.recipe.export_trees import (
    NATIVE,
    Boosting,
    histogram_trees,
    lightgbm_trees,
    voting_trees,
)
from workers.libraries import require
from workers.training.recipes.files import FittedRecipe, decode

OPSETS = {"": 20, "ai.onnx.ml": 3}  # onnxruntime reads these since 1.17
IR = 10
LINEAR = ("LinearSVC", "LogisticRegression", "RidgeClassifier", "SGDClassifier")
BOOSTINGS: Mapping[str, Callable[[Any], Boosting]] = {
    "HistGradientBoostingClassifier": histogram_trees,
    "HistGradientBoostingRegressor": histogram_trees,
    "ExtraTreesClassifier": voting_trees,
    "LGBMClassifier": lightgbm_trees,
    "LGBMRegressor": lightgbm_trees,
    "RandomForestClassifier": voting_trees,
}
# They compare float32: scikit-learn's own trees, and XGBoost.
NARROW = ("DecisionTree", "ExtraTree", "GradientBoosting", "RandomForest", "XGB")
FLOAT32 = ("PolynomialFeatures",)  # their conversion to float64 does not load


def export(artifact: bytes, classes: Sequence[str]) -> bytes:
    """Return the ONNX model of a recipe's file, from `features` (n, d) float32.

    Outputs: `label` (n,) str with `probabilities` or `scores`, or `value` (n,) for regressors.

    Raises:
        ArtifactError: It is not a recipe's file.
        RefusedError: A step of the recipe has no converter, or no row is left in the model.
        MissingLibraryError: A library is not installed.
    """
    onnx = require("onnx", "export")
    fitted = decode(artifact)
    if fitted.estimator is None:
        raise RefusedError("no row is left in this model: it predicts nothing")
    graph = RecipeGraph(onnx)
    found = answer(graph, fitted, graph.cast("features", "DOUBLE"))
    if not fitted.recipe.classifies:
        graph.give("value", found.index, "DOUBLE", ["rows"])
        return graph.encode(fitted.columns)
    names = graph.texts([classes[place] for place in fitted.classes])
    graph.give("label", graph.node("Gather", names, found.index), "STRING", ["rows"])
    output = "probabilities" if found.probable else "scores"
    graph.give(output, found.scores, "DOUBLE", ["rows", found.width])
    return graph.encode(fitted.columns)


@dataclass(frozen=True, slots=True)
class Answer:
    """The outputs of an estimator's part of a graph, as names of values in it.

    index: (n,) int64 of the classes that it knows, or (n,) float64 predictions. scores: (n,
    width) of classes, probabilities if `probable`.
    """

    index: str
    scores: str = ""
    width: int = 0
    probable: bool = False


def answer(graph: "RecipeGraph", fitted: FittedRecipe, wide: str, prefix: str = "") -> Answer:
    """Add all steps of a fitted recipe to a graph, on float64 rows. Raises as `export`.

    prefix: for the names that converters choose.
    """
    *steps, last = fitted.steps
    for place, step in enumerate(steps):
        if type(step).__name__ == "SimpleImputer":
            wide = _imputed(graph, step, wide)
        else:
            (wide, *_) = graph.convert(step, wide, f"{prefix}step{place}_")
    return _predict(graph, last, wide, fitted, prefix)


def probabilities(graph: "RecipeGraph", fitted: FittedRecipe, found: Answer) -> str:
    """Add the probabilities (n, classes) that scikit-learn or LightGBM computes from scores.

    Raises RefusedError if they are computed in a way that is not implemented here.
    """
    if found.probable:
        return found.scores
    estimator = fitted.steps[-1]
    kind = type(estimator).__name__
    if kind == "DummyClassifier":
        return graph.node("Add", found.scores, graph.constant(np.ones((1, 1))))
    if BOOSTINGS.get(kind) is voting_trees:
        count = graph.constant(np.array(float(len(estimator.estimators_))))
        return graph.node("Div", found.scores, count)
    if kind == "SGDClassifier" and (estimator.loss != "log_loss" or found.width > 1):
        # With several classes they are NaN if all scores are far below 0.
        raise _refusal(estimator, "probabilities of several classes or of this loss")
    if kind not in BOOSTINGS and kind not in ("LogisticRegression", "SGDClassifier"):
        raise _refusal(estimator, "probabilities")
    if found.width > 1:
        return graph.node("Softmax", found.scores, axis=1)
    own = graph.node("Sigmoid", found.scores)
    other = graph.node("Sub", graph.constant(np.array(1.0)), own)
    return graph.node("Concat", other, own, axis=1)


def _predict(
    graph: "RecipeGraph", estimator: Any, wide: str, fitted: FittedRecipe, prefix: str
) -> Answer:
    """Add the last step."""
    kind = type(estimator).__name__
    if kind in BOOSTINGS:
        boosting = BOOSTINGS[kind](estimator)
        if kind.startswith(NARROW):
            wide = graph.cast(graph.cast(wide, "FLOAT"), "DOUBLE")
        raw = graph.node("TreeEnsembleRegressor", wide, **boosting.attributes(graph.onnx))
        width = len(boosting.start)
        start = graph.constant(boosting.start)
        scores = graph.node("Add", graph.cast(raw, "DOUBLE"), start)
    elif kind in LINEAR:
        weights = graph.constant(np.atleast_2d(estimator.coef_).T.astype(np.float64))
        product = graph.node("MatMul", wide, weights)
        start = graph.constant(np.atleast_1d(estimator.intercept_).astype(np.float64))
        width = len(np.atleast_2d(estimator.coef_))
        scores = graph.node("Add", product, start)
    elif kind == "DummyClassifier":  # for a single class, whatever the recipe is
        scores, width = (
            graph.node("MatMul", wide, graph.constant(np.zeros((fitted.columns, 1)))),
            1,
        )
    else:
        return _converted(graph, estimator, wide, fitted, prefix)
    if not fitted.recipe.classifies:
        return Answer(graph.flat(scores))
    if len(fitted.classes) == 2 and width == 1:
        above = graph.node("Greater", scores, graph.constant(np.array(0.0)))
        index = graph.flat(graph.cast(above, "INT64"))
    else:
        index = graph.node("ArgMax", scores, axis=1, keepdims=0)
    return Answer(index, scores, width)


def _imputed(graph: "RecipeGraph", step: Any, wide: str) -> str:
    """Add an imputer, whose operator in ONNX supports only float32. Raises RefusedError."""
    values = np.asarray(step.statistics_, np.float64)
    if step.add_indicator or not np.isnan(step.missing_values) or np.isnan(values).any():
        raise _refusal(step, "an indicator, empty columns or another value for missing")
    return graph.node("Where", graph.node("IsNaN", wide), graph.constant(values), wide)


def _converted(
    graph: "RecipeGraph", estimator: Any, wide: str, fitted: FittedRecipe, prefix: str
) -> Answer:
    narrow = type(estimator).__name__.startswith(NARROW)
    given = graph.cast(wide, "FLOAT") if narrow else wide
    found = graph.convert(estimator, given, f"{prefix}model_", narrow=narrow)
    if not fitted.recipe.classifies:
        return Answer(graph.flat(graph.cast(found[0], "DOUBLE")))
    # The estimator numbers the classes of its rows 0, 1, ….
    index = graph.flat(graph.cast(found[0], "INT64"))
    scores = graph.cast(found[1], "DOUBLE")
    return Answer(index, scores, len(fitted.classes), probable=True)


@dataclass(slots=True)
class RecipeGraph:
    """A graph built node by node; a node's output is named by its number."""

    onnx: Any
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    functions: list[Any] = field(default_factory=list)

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        name = f"lethe{len(self.nodes)}"
        domain = "ai.onnx.ml" if operator.startswith("Tree") else ""
        made = self.onnx.helper.make_node(operator, inputs, [name], domain=domain, **attributes)
        self.nodes.append(made)
        return name

    def cast(self, value: str, kind: str) -> str:
        """Return a value cast to another type."""
        return self.node("Cast", value, to=getattr(self.onnx.TensorProto, kind))

    def flat(self, value: str) -> str:
        """Return a value with n numbers, reshaped to (n,)."""
        return self.node("Reshape", value, self.constant(np.array([-1], np.int64)))

    def constant(self, array: Any) -> str:
        """Add a tensor and return its name."""
        name = f"constant{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def texts(self, values: Sequence[str]) -> str:
        """Add texts and return their name."""
        name, coded = f"constant{len(self.constants)}", [one.encode() for one in values]
        kind = self.onnx.TensorProto.STRING
        self.constants.append(self.onnx.helper.make_tensor(name, kind, [len(coded)], coded))
        return name

    def give(self, name: str, value: str, kind: str, shape: Sequence[str | int]) -> None:
        """Add a named output with a value."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name]))
        typed = getattr(self.onnx.TensorProto, kind)
        self.outputs.append(self.onnx.helper.make_tensor_value_info(name, typed, shape))

    def convert(self, step: Any, given: str, prefix: str, *, narrow: bool = False) -> list[str]:
        """Add the converters' nodes for a step; return its outputs. Raises RefusedError."""
        skl2onnx = require("skl2onnx", "export")
        types = require("skl2onnx.common.data_types", "export")
        kind = types.FloatTensorType if narrow else types.DoubleTensorType
        _register(step)
        options = {id(step): {"zipmap": False}} if hasattr(step, "predict_proba") else None
        try:
            made = skl2onnx.to_onnx(
                step,
                initial_types=[("given", kind([None, step.n_features_in_]))],
                options=options,
                target_opset=OPSETS,
            )
        except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            raise _refusal(step, type(error).__name__) from None
        made = self.onnx.compose.add_prefix(made, prefix)
        link = self.onnx.helper.make_node("Identity", [given], [f"{prefix}given"])
        self.nodes += [link, *made.graph.node]
        self.constants += made.graph.initializer
        known = {(one.domain, one.name) for one in self.functions}
        self.functions += [one for one in made.functions if (one.domain, one.name) not in known]
        return [one.name for one in made.graph.output]

    def encode(self, columns: int) -> bytes:
        """Return the model's file."""
        h = self.onnx.helper
        kind = self.onnx.TensorProto.FLOAT
        given = h.make_tensor_value_info("features", kind, ["rows", columns])
        graph = h.make_graph(self.nodes, "recipe", [given], self.outputs, self.constants)
        model = h.make_model(
            graph,
            opset_imports=[h.make_opsetid(*one) for one in OPSETS.items()],
            ir_version=IR,
            producer_name="lethe",
            functions=self.functions,
        )
        self.onnx.checker.check_model(model)
        data: bytes = model.SerializeToString()
        return data


def _refusal(step: Any, why: str) -> RefusedError:
    name = f"{type(step).__module__.partition('._')[0]}.{type(step).__name__}"
    return RefusedError(f"{name} cannot be converted to ONNX ({why}): {NATIVE}")


def _register(step: Any) -> None:
    """Register XGBoost's classes with skl2onnx. Raises RefusedError if it has no converter."""
    skl2onnx = require("skl2onnx", "export")
    kind = type(step)
    if kind.__module__.startswith("xgboost"):
        shapes = require("skl2onnx.common.shape_calculator", "export")
        module = "onnxmltools.convert.xgboost.operator_converters.XGBoost"
        classifies = hasattr(step, "predict_proba")
        skl2onnx.update_registered_converter(
            kind,
            f"XGBoost{kind.__name__}",
            shapes.calculate_linear_classifier_output_shapes
            if classifies
            else shapes.calculate_linear_regressor_output_shapes,
            require(module, "export").convert_xgboost,
            options={"zipmap": [True, False], "nocl": [True, False]} if classifies else None,
        )
        return
    known = require("skl2onnx._supported_operators", "export").sklearn_operator_name_map
    if kind not in known or kind.__name__ in FLOAT32:
        raise _refusal(step, "no converter")
