"""Pack labelled rows, a recipe and sharding options as a registration for POST /v1/models."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.registration.recipe import RecipeRegistration, RecipeRows, prepare_recipe
from workers.training.recipes import process
from workers.training.recipes.files import decode
from workers.training.recipes.fit import FitRows
from workers.training.recipes.process import Limits
from workers.training.recipes.recipe import Recipe
from workers.training.shards.predict import ShardedModel


def prepare_shards(
    rows: RecipeRows, recipe: Mapping[str, Any], options: Mapping[str, Any], *, ref: str
) -> RecipeRegistration:
    """Pack the rows that are not held out, with the manifest for them; as `in_shards`."""
    return in_shards(prepare_recipe(rows, recipe, ref=ref), options)


def in_shards(prepared: RecipeRegistration, options: Mapping[str, Any]) -> RecipeRegistration:
    """Return the registration of a recipe or script in shards.

    options: count and aggregate. If no column names the rows' subjects, each record is assigned
    by itself: otherwise all rows of a client would be in one shard.
    """
    by = "record" if prepared.subjects == prepared.clients else "subject"
    manifest = {**prepared.manifest, "family": "shards", "shards": {"by": by, **options}}
    return replace(prepared, manifest=manifest)


def predict(file: bytes, registration: RecipeRegistration) -> NDArray[Any]:
    """Return a version file's predictions for the held-out rows: (h,), or (shards, h) apart.

    Raises RefusedError if it is not a file of shards, or has no rows left.
    """
    return ShardedModel.from_bytes(file).predict(registration.features)


def predict_unsharded(
    rows: RecipeRows, recipe: Recipe, features: NDArray[np.float64], limits: Limits
) -> NDArray[Any]:
    """Return the recipe's predictions for features (h, d), fitted to all rows at once, here.

    Runs in a separate process. Raises RefusedError.
    """
    train = ~rows.is_test
    weights = None if rows.weights is None else rows.weights[train]
    known = np.ascontiguousarray(rows.features[train])
    table = FitRows(known, rows.labels[train], weights)
    return decode(process.fit(recipe, table, process.threads_of(recipe), limits)).predict(
        features
    )
