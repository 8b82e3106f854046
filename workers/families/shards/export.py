"""A model of shards for other programs: one ONNX graph, or scikit-learn's voting estimators.

In ONNX all shards read the same rows. Their outputs are reordered to the registered classes,
and added as `workers.training.shards.predict` adds them; on equal sums the first class wins.
"""

from collections.abc import Sequence

import numpy as np

from workers.errors import RefusedError
from workers.families.recipe.export import Answer, RecipeGraph, answer, probabilities
from workers.families.recipe.export_skops import dump
from workers.families.recipe.export_trees import NATIVE
from workers.libraries import require
from workers.training.recipes.files import FittedRecipe
from workers.training.shards.predict import ShardedModel

EMPTY = "no row is left in this model: it predicts nothing"


def to_onnx(artifact: bytes, classes: Sequence[str]) -> bytes:
    """Return one ONNX model of all shards, from `features` (n, d) float32.

    Outputs: `label` (n,) str and `probabilities` (n, classes) float64, for a vote the shares of
    the shards; or `value` (n,) for regressors. Shards that predict separately have outputs
    `label_000` or `value_000` and so on, one for each shard with rows, by its number.

    Raises:
        ArtifactError: It is not a file of shards.
        RefusedError: A step of the recipe has no converter, or no row is left in the model.
        MissingLibraryError: A library is not installed.
    """
    graph = RecipeGraph(require("onnx", "export"))
    model = ShardedModel.from_bytes(artifact)
    fitted = _fitted(model)
    wide = graph.cast("features", "DOUBLE")
    answers = {
        place: answer(graph, one, wide, f"shard{place:03}_") for place, one in fitted.items()
    }
    columns = next(iter(fitted.values())).columns
    classifies = bool(classes)
    if model.aggregate == "apart":
        for place, found in answers.items():
            if classifies:
                names = graph.texts([classes[one] for one in fitted[place].classes])
                label = graph.node("Gather", names, found.index)
                graph.give(f"label_{place:03}", label, "STRING", ["rows"])
            else:
                graph.give(f"value_{place:03}", found.index, "DOUBLE", ["rows"])
        return graph.encode(columns)
    parts = [
        _scores(graph, fitted[place], found, len(classes), votes=model.aggregate == "vote")
        if classifies
        else found.index
        for place, found in answers.items()
    ]
    total = graph.node("Sum", *parts)
    mean = graph.node("Div", total, graph.constant(np.array(float(len(parts)))))
    if not classifies:
        graph.give("value", mean, "DOUBLE", ["rows"])
        return graph.encode(columns)
    index = graph.node("ArgMax", total, axis=1, keepdims=0)
    label = graph.node("Gather", graph.texts(classes), index)
    graph.give("label", label, "STRING", ["rows"])
    graph.give("probabilities", mean, "DOUBLE", ["rows", len(classes)])
    return graph.encode(columns)


def to_skops(artifact: bytes, classes: Sequence[str]) -> bytes:
    """Return scikit-learn's VotingClassifier or VotingRegressor of the shards, by skops.

    Raises:
        ArtifactError: It is not a file of shards.
        RefusedError: They predict separately, a shard has not seen every class, or skops cannot
            write an estimator.
        MissingLibraryError: A library is not installed.
    """
    ensemble = require("sklearn.ensemble", "export")
    model = ShardedModel.from_bytes(artifact)
    fitted = list(_fitted(model).values())
    if model.aggregate == "apart":
        raise RefusedError(
            "shards with the aggregate apart are not one estimator of "
            f"scikit-learn: {NATIVE}, or ONNX"
        )
    named = [(f"shard-{place:03}", one.estimator) for place, one in enumerate(fitted)]
    if classes:
        if any(len(one.classes) < len(classes) for one in fitted):
            raise RefusedError(
                "a shard has not seen every class, which scikit-learn's vote needs: "
                f"{NATIVE}, or ONNX"
            )
        voting = "hard" if model.aggregate == "vote" else "soft"
        made = ensemble.VotingClassifier(named, voting=voting)
        encoder = require("sklearn.preprocessing", "export").LabelEncoder()
        encoder.classes_ = np.array(classes)
        made.le_, made.classes_ = encoder, encoder.classes_
    else:
        made = ensemble.VotingRegressor(named)
    made.estimators_ = [one.estimator for one in fitted]
    made.named_estimators_ = dict(named)
    return dump(made, [step for one in fitted for step in one.steps])


def _fitted(model: ShardedModel) -> dict[int, FittedRecipe]:
    found = {place: one for place, one in enumerate(model.shards) if one is not None}
    if not found:
        raise RefusedError(EMPTY)
    return found


def _scores(
    graph: RecipeGraph, fitted: FittedRecipe, found: Answer, width: int, *, votes: bool
) -> str:
    """Return the name of a shard's summand, (n, width): probabilities, or 1 for its class."""
    places = np.eye(width)[list(fitted.classes)]
    if votes:
        return graph.node("Gather", graph.constant(places), found.index, axis=0)
    return graph.node("MatMul", probabilities(graph, fitted, found), graph.constant(places))
