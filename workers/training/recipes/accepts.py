"""Whether a recipe accepts a table's missing values and weights.

Estimators declare it, so an operator learns which column is a problem before any row is sent.
The fit itself still decides.
"""

from collections.abc import Sequence
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.errors import RefusedError
from workers.training.recipes.recipe import Recipe, build

IMPUTERS = "sklearn.impute."  # after an imputer nothing is missing


def check_rows(
    recipe: Recipe, features: NDArray[np.floating[Any]], names: Sequence[str], *, weighted: bool
) -> None:
    """Return if a recipe declares that it accepts these rows (n, d).

    names: the feature names, empty if there are none. Raises RefusedError if it takes no
    weights, or no missing values, naming the first column that has one; and as `build`.
    """
    estimator = build(recipe, 1)
    steps = [step for _, step in estimator.steps] if len(recipe.steps) > 1 else [estimator]
    last = recipe.steps[-1].estimator
    if weighted and "sample_weight" not in signature(steps[-1].fit).parameters:
        raise RefusedError(f"{last}: takes no sample weights: leave --sample-weight out")
    missing = np.isnan(features).sum(axis=0)
    if not missing.any() or (refuses := _refuses_missing(recipe, steps)) is None:
        return
    place = int(np.flatnonzero(missing)[0])
    column = names[place] if names else f"feature {place}"
    raise RefusedError(
        f"{column}: {int(missing[place]):,} of {len(features):,} values are missing, and "
        f"{refuses} takes none: put sklearn.impute.SimpleImputer before it, or leave the "
        "column or these rows out"
    )


def _refuses_missing(recipe: Recipe, steps: Sequence[Any]) -> str | None:
    """Return the first step that missing values reach and that does not accept them."""
    from sklearn.utils import get_tags

    for named, step in zip(recipe.steps, steps, strict=True):
        if not get_tags(step).input_tags.allow_nan:
            return named.estimator
        if named.estimator.startswith(IMPUTERS):
            return None
    return None
