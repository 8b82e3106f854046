"""Fit a recipe on rows, in this process: the part that child processes run."""

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.errors import RefusedError
from workers.training.recipes.files import FittedRecipe, encode
from workers.training.recipes.recipe import Recipe, build


@dataclass(frozen=True, slots=True, eq=False)
class FitRows:
    """features (n, d) float64, NaN where missing; labels (n,) int64 of classes, or float64.

    weights (n,) float64, for models registered with them. records: their ids, which no recipe
    sees.
    """

    features: NDArray[np.float64]
    labels: NDArray[Any]
    weights: NDArray[np.float64] | None = None
    records: Sequence[str] = ()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.labels)


def fit(recipe: Recipe, table: FitRows, threads: int) -> bytes:
    """Return the model file of a recipe fitted on rows, in their order.

    The estimator sees the classes that the rows have as 0, 1, …: an erasure may have removed
    one. A single class is always predicted, without a fit. Raises what the recipe's library
    raises, and RefusedError for an invalid recipe.
    """
    columns = table.features.shape[1]
    if not len(table):
        return encode(FittedRecipe(recipe, columns, (), None))
    present: tuple[int, ...] = ()
    labels = table.labels
    if recipe.classifies:
        found, labels = np.unique(table.labels, return_inverse=True)
        present = tuple(int(one) for one in found)
    estimator = build(recipe, threads)
    weights = {} if table.weights is None else {_weight_name(recipe, estimator): table.weights}
    if len(present) == 1:
        from sklearn.dummy import DummyClassifier

        estimator, weights = DummyClassifier(strategy="most_frequent"), {}
    estimator.fit(table.features, labels, **weights)
    return encode(FittedRecipe(recipe, columns, present, estimator))


def _weight_name(recipe: Recipe, estimator: Any) -> str:
    """Return the argument that passes weights to the last step. Raises RefusedError."""
    last = estimator.steps[-1][1] if len(recipe.steps) > 1 else estimator
    if "sample_weight" not in signature(last.fit).parameters:
        raise RefusedError(
            f"{recipe.steps[-1].estimator}: takes no sample weights: leave --sample-weight out"
        )
    prefix = f"{estimator.steps[-1][0]}__" if len(recipe.steps) > 1 else ""
    return f"{prefix}sample_weight"


STAND_IN = 200  # rows


def stand_in(table: FitRows) -> FitRows:
    """Return made-up rows of the same width, types and classes.

    A fit that fails on them fails because of the recipe, and its message quotes no real row.
    """
    count = min(len(table), STAND_IN)
    drawn = np.random.default_rng(0).normal(size=(count, table.features.shape[1]))
    if np.isnan(table.features).any():
        drawn[0, 0] = np.nan
    weights = None if table.weights is None else np.ones(count)
    if table.labels.dtype.kind == "i":
        return FitRows(drawn, np.resize(np.unique(table.labels), count), weights)
    return FitRows(drawn, np.arange(count, dtype=np.float64), weights)
