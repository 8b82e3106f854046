"""A fitted estimator as a file without code: arrays and JSON in one safetensors file.

An estimator predicts from its attributes. Each value is written by its type: numbers and
texts as JSON, arrays as tensors, objects of the classes below as their attributes, boosters
of LightGBM and XGBoost in their library's format. Any other type is refused, in writing and
in reading. The same fit gives the same bytes, whatever the number of threads.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.catalogue import CLASSIFIERS, REGRESSORS, TRANSFORMERS
from workers.arrays import DTYPES, decode_tensors, dtype_name, encode_tensors
from workers.errors import ArtifactError, RefusedError
from workers.libraries import with_extra
from workers.training.recipes.recipe import Recipe

KIND = "recipe/1"
# Classes by their name in files: public ones by their import path.
PARTS: Mapping[str, str] = {
    "dummy-classifier": "sklearn.dummy.DummyClassifier",
    "dummy-regressor": "sklearn.dummy.DummyRegressor",
    "hist-bins": "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
    "hist-tree": "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "label-binarizer": "sklearn.preprocessing.LabelBinarizer",
    "label-encoder": "sklearn.preprocessing.LabelEncoder",
    "missing-indicator": "sklearn.impute.MissingIndicator",
    "one-hot-encoder": "sklearn.preprocessing.OneHotEncoder",
    "pipeline": "sklearn.pipeline.Pipeline",
}
PATHS: Mapping[str, str] = {
    **{name: name for name in (*CLASSIFIERS, *REGRESSORS, *TRANSFORMERS)},
    **PARTS,
}
TREE = "sklearn.tree._tree.Tree"
CANNOT_PREDICT = (
    "the estimator in this file cannot predict, since its fitted "
    "attributes do not fit each other: fetch the file again"
)
MOST_CLASSES = MOST_COLUMNS = 10_000  # of what can be registered
MOST_LISTED = (
    1 << 26
)  # bytes of an array of texts, each padded to the longest that fits its type
# Attributes of the fit that prediction does not use: threads, generators, losses (recreated
# on reading) and arrays with an entry for each training row.
LEFT_OUT = frozenset(
    {"n_jobs", "n_threads", "verbose", "_base_loss", "_feature_subsample_rng", "_loss"}
    | {"_loss_function_", "_rng", "_scorer"}
    | {"oob_decision_function_", "oob_prediction_", "outliers_"}
)


@dataclass(frozen=True, slots=True, eq=False)
class FittedRecipe:
    """A model file's content. estimator: None if there were no rows to fit.

    classes: positions in the registered list of the classes present, in the order of the
    estimator's outputs; empty for numbers. columns: width of an input.
    """

    recipe: Recipe
    columns: int
    classes: tuple[int, ...]
    estimator: Any

    @property
    def steps(self) -> list[Any]:
        """The fitted steps in order, the last one the estimator itself."""
        return [one for _, one in getattr(self.estimator, "steps", [("", self.estimator)])]

    def predict(self, features: NDArray[np.float64]) -> NDArray[Any]:
        """Return for each row of (n, columns) its class position or its number.

        Raises:
            RefusedError: The model was fitted on no rows.
            ArtifactError: The file's estimator cannot answer for these rows.
            ValueError: Its library refuses these rows, such as those with missing values.
        """
        if self.estimator is None:
            raise RefusedError("no row is left in this model: it predicts nothing")
        found = self._answers("predict", features)
        if found.shape != (len(features),) or found.dtype.kind not in "fiu":
            raise ArtifactError(CANNOT_PREDICT)
        if not self.recipe.classifies:
            return found.astype(np.float64)
        if not ((found >= 0) & (found < len(self.classes))).all():
            raise ArtifactError(CANNOT_PREDICT)
        return np.array(self.classes, dtype=np.int64)[found.astype(np.int64)]

    def probabilities(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (n, len(classes)) in the order of `classes`.

        Raises as `predict`, and RefusedError if the model has no probabilities.
        """
        if not hasattr(self.estimator, "predict_proba"):
            raise RefusedError(
                "the estimator of this model has no probabilities: use `predict`"
            )
        found = self._answers("predict_proba", features)
        if found.shape != (len(features), len(self.classes)) or found.dtype.kind != "f":
            raise ArtifactError(CANNOT_PREDICT)
        return found

    def _answers(self, method: str, features: NDArray[np.float64]) -> NDArray[Any]:
        try:
            return np.asarray(getattr(self.estimator, method)(features))
        except (RefusedError, MemoryError, ValueError):
            raise
        except Exception as error:  # a library raises anything if its attributes do not fit
            raise ArtifactError(f"{CANNOT_PREDICT} ({type(error).__name__})") from None


def encode(fitted: FittedRecipe) -> bytes:
    """Return the file of a fitted recipe: a pure function of its predicting state.

    Raises ArtifactError for an attribute of an unsupported type.
    """
    writer = _Writer({})
    metadata = {
        "classes": list(fitted.classes),
        "columns": fitted.columns,
        "estimator": writer.value(fitted.estimator),
        "kind": KIND,
        "recipe": fitted.recipe.document,
    }
    return encode_tensors(writer.arrays, metadata)


def decode(data: bytes) -> FittedRecipe:
    """Return the fitted recipe of a file; its estimator predicts like the one written.

    Raises:
        ArtifactError: The bytes are no such file, or hold what it cannot hold.
        RefusedError: A library of its classes is not installed here.
    """
    arrays, metadata = decode_tensors(data)
    try:
        if metadata["kind"] != KIND:
            raise ArtifactError("these bytes are not the file of a recipe: fetch it again")
        recipe = Recipe.parse(metadata["recipe"])
        columns, classes = metadata["columns"], tuple(metadata["classes"])
        _check_numbers(columns, classes)
        estimator = _read(metadata["estimator"], arrays)
        found = FittedRecipe(recipe, columns, classes, estimator)
        _check_answers(found)
    except (RefusedError, MemoryError):
        raise
    except Exception as error:  # of the libraries: they check little of what they are given
        name = type(error).__name__
        raise ArtifactError(
            f"the file of a recipe cannot be read ({name}): fetch it again"
        ) from None
    return found


def _check_numbers(columns: Any, classes: tuple[Any, ...]) -> None:
    """Check that the numbers are of a model that could be registered. Raises ArtifactError."""
    known = all(type(one) is int and 0 <= one < MOST_CLASSES for one in classes)
    if not known or list(classes) != sorted(set(classes)):
        raise ArtifactError(
            "the file of a recipe must list its classes as ascending integers from "
            f"0 to {MOST_CLASSES - 1}: fetch it again"
        )
    if type(columns) is not int or not 1 <= columns <= MOST_COLUMNS:
        raise ArtifactError(
            f"the file of a recipe must state 1 to {MOST_COLUMNS} columns: fetch it again"
        )


def _check_answers(found: FittedRecipe) -> None:
    """Check that the estimator has these columns and classes, and answers for a row of zeros.

    Attributes of which each is of a known type need not fit each other. Raises ArtifactError,
    and whatever the estimator's library raises.
    """
    if found.estimator is None or not found.recipe.classifies:
        if found.classes:
            raise ArtifactError(
                "the file of a recipe lists classes although its model predicts "
                "numbers or has no rows: fetch the file again"
            )
    elif not np.array_equal(found.steps[-1].classes_, np.arange(len(found.classes))):
        raise ArtifactError(
            f"the estimator has other classes than the {len(found.classes)} that "
            "its file lists: fetch the file again"
        )
    if found.estimator is None:
        return
    if getattr(found.steps[0], "n_features_in_", found.columns) != found.columns:
        raise ArtifactError(
            "the estimator reads another number of columns than the "
            f"{found.columns} that its file states: fetch the file again"
        )
    row = np.zeros((1, found.columns))
    try:
        with np.errstate(all="ignore"):
            found.predict(row)
            if found.recipe.classifies and hasattr(found.estimator, "predict_proba"):
                found.probabilities(row)
    except MemoryError:  # for one row
        raise ArtifactError(CANNOT_PREDICT) from None
    except ValueError as error:
        # Some are refused rightly: Box-Cox takes no zeros. Of attributes that are missing or
        # have other axes, scikit-learn's and numpy's errors are of two kinds.
        if isinstance(error, AttributeError | IndexError):
            raise


@dataclass(frozen=True, slots=True)
class _Writer:
    """Collects arrays while values are written."""

    arrays: dict[str, NDArray[Any]]

    def value(self, value: Any) -> Any:
        """Return JSON for a value; every object in it has one name, its type."""
        if value is None or isinstance(value, bool | str):
            return value
        if type(value) is int:
            return value if abs(value) < 2**53 else {"int": str(value)}
        if type(value) is float:
            return {"float": value.hex()}
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, np.generic):
            return {"scalar": self._tensor(np.asarray(value))}
        if isinstance(value, np.random.RandomState):
            return None  # of a boosting's trees, which share their parent's
        if isinstance(value, np.dtype):
            return {"dtype": value.str}
        if isinstance(value, list | tuple):
            return {type(value).__name__: [self.value(one) for one in value]}
        if isinstance(value, dict):
            pairs = [[self.value(key), self.value(one)] for key, one in value.items()]
            return {"dict": pairs}
        return self._object(value)

    def _tensor(self, array: NDArray[Any]) -> str:
        if dtype_name(array) not in DTYPES:
            raise ArtifactError(
                f"the fitted estimator has an array of the type {array.dtype}, which "
                "the model file cannot hold: choose other parameters or another "
                "estimator"
            )
        name = f"{len(self.arrays):06}"
        self.arrays[name] = array
        return name

    def _array(self, array: NDArray[Any]) -> dict[str, Any]:
        if array.dtype.names is not None:
            # Field by field: padding bytes are uninitialised memory.
            fields = [[name, self._tensor(array[name])] for name in array.dtype.names]
            return {"records": fields}
        if array.dtype.kind in "OU":
            items = [self.value(one) for one in array.ravel().tolist()]
            return {"items": [list(array.shape), array.dtype.str, items]}
        # The rounding of matrix products depends on the memory order.
        if array.flags.f_contiguous and not array.flags.c_contiguous:
            return {"columns": self._tensor(array.T)}
        return {"array": self._tensor(array)}

    def _object(self, value: Any) -> dict[str, Any]:
        path = f"{type(value).__module__}.{type(value).__qualname__}"
        if path == "lightgbm.basic.Booster":
            return {"lightgbm": self._bytes(_plain_text(value.model_to_string()).encode())}
        if path == "xgboost.core.Booster":
            return {"xgboost": self._bytes(bytes(value.save_raw("ubj")))}
        if path == TREE:
            _, sizes, state = value.__reduce__()
            return {"tree": [self.value(one) for one in (*sizes, state)]}
        known = _names().get(type(value))
        if known is None:
            raise ArtifactError(
                f"the fitted estimator has an attribute of the class {path}, which the "
                "model file cannot hold: choose other parameters or another estimator"
            )
        state = {k: v for k, v in sorted(vars(value).items()) if k not in LEFT_OUT}
        return {"object": [known, {name: self.value(one) for name, one in state.items()}]}

    def _bytes(self, data: bytes) -> str:
        return self._tensor(np.frombuffer(data, dtype=np.uint8))


def _plain_text(text: str) -> str:
    """Return a LightGBM model without the number of threads that made it."""
    lines = [line for line in text.splitlines() if not line.startswith("[num_threads:")]
    return "\n".join(lines) + "\n"


def _names() -> dict[type, str]:
    """Return the name that files use for each class whose library is loaded, by class."""
    found = {}
    for name, path in PATHS.items():
        module, _, attribute = path.rpartition(".")
        if module in sys.modules:
            found[getattr(sys.modules[module], attribute)] = name
    return found


def _load(name: str) -> Any:
    module, _, attribute = PATHS[name].rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError:
        raise RefusedError(
            f"this model is read by {module}, which is not installed here: "
            f"{with_extra('recipes')}"
        ) from None


def _read(value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    if not isinstance(value, dict):
        if isinstance(value, float | list):
            raise ArtifactError(
                "the file of a recipe has a number or a list without its type: fetch it again"
            )
        return value
    ((kind, content),) = value.items()
    return _READERS[kind](content, arrays)


def _read_records(content: Any, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    columns = [(str(name), arrays[tensor]) for name, tensor in content]
    dtype = _record_type([(name, column.dtype.str) for name, column in columns])
    found = np.zeros(len(columns[0][1]), dtype=dtype)
    for name, column in columns:
        found[name] = column
    return found


def _record_type(fields: list[tuple[str, str]]) -> np.dtype[Any]:
    """Return the type of a tree's nodes as their library lays them out in memory."""
    from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
    from sklearn.tree._tree import NODE_DTYPE

    layouts: tuple[np.dtype[Any], ...] = np.dtype(PREDICTOR_RECORD_DTYPE), np.dtype(NODE_DTYPE)
    for known in layouts:
        if [(name, known[name].str) for name in known.names or ()] == fields:
            return known
    raise ArtifactError(
        "the model's trees have other fields than those of the installed "
        "scikit-learn: install the version that fitted the model"
    )


def _read_items(content: Any, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    shape, dtype, items = content
    if np.dtype(dtype).kind not in "OU":
        raise ArtifactError(
            "the file of a recipe lists numbers that belong into a tensor: fetch it again"
        )
    if len(items) * np.dtype(dtype).itemsize > MOST_LISTED:
        raise ArtifactError(
            "the file of a recipe has a list of texts that takes more than "
            f"{MOST_LISTED} bytes: fetch it again"
        )
    found = np.empty(len(items), dtype=dtype)
    for place, one in enumerate(items):
        found[place] = _read(one, arrays)
    return found.reshape(shape)


def _read_tree(content: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    from sklearn.tree._tree import Tree

    features, classes, outputs, state = (_read(one, arrays) for one in content)
    nodes = state["nodes"]
    if state["node_count"] != len(nodes) or classes.shape != (outputs,):
        raise ArtifactError(
            "a tree states another number of nodes or outputs than it has: fetch the file again"
        )
    inner = nodes["left_child"] != -1
    _check_nodes(nodes, inner, ("left_child", "right_child"), "feature", features)
    tree = Tree(features, classes, outputs)
    tree.__setstate__(state)
    return tree


def _check_nodes(
    nodes: NDArray[Any],
    inner: NDArray[np.bool_],
    links: Sequence[str],
    feature: str,
    columns: int,
) -> None:
    """Check that a tree can be walked: compiled code follows its links unchecked.

    A child comes after its parent, so that each walk ends.
    """
    if not len(nodes):
        raise ArtifactError("a tree has no nodes: fetch the file again")
    places = np.flatnonzero(inner)
    for link in links:
        children = nodes[link][inner]
        if not ((children > places) & (children < len(nodes))).all():
            raise ArtifactError(
                "a tree has a node whose child is not a later node of the tree: fetch "
                "the file again"
            )
    used = nodes[feature][inner]
    if not ((used >= 0) & (used < columns)).all():
        raise ArtifactError(
            "a tree reads a column that its estimator does not have: fetch the file again"
        )


def _read_object(content: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    name, state = content
    kind = _load(name)
    found = kind.__new__(kind)
    found.__dict__.update({key: _read(one, arrays) for key, one in state.items()})
    if hasattr(found, "get_params"):
        for parameter in LEFT_OUT.intersection(kind._get_param_names()):
            setattr(found, parameter, {"n_threads": 1, "verbose": 0}.get(parameter))
    if "HistGradientBoosting" in name:
        _check_hist_trees(found)
    if "GradientBoosting" in name:
        found._loss = found._get_loss(sample_weight=None)
    _check_trees(found)
    if "estimators_" in state and "GradientBoosting" in name:
        start = found._raw_predict_init(np.zeros((1, found.n_features_in_), np.float32))
        if found.estimators_.shape[1:] != start.shape[1:]:
            raise ArtifactError(
                "the trees of a gradient boosting have another number of outputs than "
                "its first prediction: fetch the file again"
            )
    if name.endswith(".PoissonRegressor"):
        found._base_loss = found._get_loss()
    return found


def _check_trees(found: Any) -> None:
    """Check that trees have as many columns as their estimator checks rows for, and one output.

    An ensemble checks the columns of rows; its trees do not. Each row is predicted as often as
    there are outputs.
    """
    state = vars(found)
    parts = np.ravel(np.array(state.get("estimators_", ()), dtype=object))
    columns = [one.n_features_in_ for one in parts]
    if "tree_" in state:
        columns.append(state["tree_"].n_features)
    if columns and state.get("n_outputs_", 1) != 1:
        raise ArtifactError(
            "a tree has several outputs, and a recipe's model has one: fetch the file again"
        )
    if any(one != found.n_features_in_ for one in columns):
        raise ArtifactError(
            "a tree reads a column that its estimator does not have: fetch the file again"
        )


def _check_hist_trees(found: Any) -> None:
    for tree in (tree for trees in found._predictors for tree in trees):
        nodes = tree.nodes
        if nodes["is_categorical"].any():
            raise ArtifactError(
                "a tree splits by categories, which no recipe's model does: fetch the "
                "file again"
            )
        inner = nodes["is_leaf"] == 0
        _check_nodes(nodes, inner, ("left", "right"), "feature_idx", found.n_features_in_)


def _read_lightgbm(content: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    _load("lightgbm.LGBMClassifier")
    return import_module("lightgbm").Booster(model_str=arrays[content].tobytes().decode())


def _read_xgboost(content: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    _load("xgboost.XGBClassifier")
    booster = import_module("xgboost").Booster()
    booster.load_model(bytearray(arrays[content].tobytes()))
    return booster


_READERS: Mapping[str, Callable[[Any, Mapping[str, NDArray[Any]]], Any]] = {
    "array": lambda content, arrays: arrays[content],
    "columns": lambda content, arrays: arrays[content].T,
    "dtype": lambda content, _: np.dtype(content),
    "dict": lambda content, arrays: {_read(k, arrays): _read(v, arrays) for k, v in content},
    "float": lambda content, _: float.fromhex(content),
    "int": lambda content, _: int(content),
    "items": _read_items,
    "lightgbm": _read_lightgbm,
    "list": lambda content, arrays: [_read(one, arrays) for one in content],
    "object": _read_object,
    "records": _read_records,
    "scalar": lambda content, arrays: arrays[content][()],
    "tree": _read_tree,
    "tuple": lambda content, arrays: tuple(_read(one, arrays) for one in content),
    "xgboost": _read_xgboost,
}
