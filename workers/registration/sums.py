"""Pack labelled rows and an estimator's options as a registration for POST /v1/models."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.errors import DatasetError, refusing
from workers.registration.recipe import RecipeRegistration, RecipeRows, pack

STEPS, MOST = 16, 256.0  # weights are multiples of 1/16 up to 256


def prepare_sums(
    rows: RecipeRows, options: Mapping[str, Any], *, ref: str, weight: str | None = None
) -> RecipeRegistration:
    """Pack the rows that are not held out, with the manifest for them.

    options: `estimator` and all other values that differ from the default. weight: the column
    of weights, which are rounded to multiples of 1/16.

    Raises DatasetError: a feature or a label is missing, negative or too large for the
    estimator, or a weight is too large or too small. The message names the column.
    RefusedError: the penalty is too small for these rows; the message names one that suffices.
    """
    _check_features(rows, options)
    if weight is not None and rows.weights is not None:
        rows = replace(rows, weights=rounded(weight, rows.weights))
    _check_alpha(rows, options)
    manifest = {
        "family": "sums",
        "ref": ref,
        "classes": list(rows.classes),
        "columns": rows.features.shape[1],
        **({"features": list(rows.names)} if rows.names else {}),
        "weighted": rows.weights is not None,
        "sums": dict(options),
    }
    return pack(rows, manifest)


def predict(file: bytes, registration: RecipeRegistration) -> NDArray[Any]:
    """Return a file's predictions for the held-out rows, as `predicted`."""
    return predicted(file, registration.features)


def predicted(file: bytes, features: NDArray[np.float64]) -> NDArray[Any]:
    """Return a file's predictions for rows (n, d): class indices, or numbers.

    Raises RefusedError if the file is not one of these estimators.
    """
    from lethe.estimators.sums.published import read_published

    with refusing():
        return read_published(file).predict(features)


def _check_features(rows: RecipeRows, options: Mapping[str, Any]) -> None:
    from lethe.estimators.sums.fixed_point import MAX_CODE

    most = float(np.ldexp(float(MAX_CODE), int(options.get("exponent", -16))))
    for place in range(rows.features.shape[1]):
        name = rows.names[place] if rows.names else f"feature {place}"
        column = rows.features[:, place]
        if np.isnan(column).any():
            raise DatasetError(
                f"{name}: has no value in a row: fill it in by a rule that no row decided, or "
                "leave the column out"
            )
        if options["estimator"] == "multinomial-nb" and (column < 0).any():
            raise DatasetError(f"{name}: is negative in a row: counts are at least 0")
        if (np.abs(column) > most).any():
            raise DatasetError(
                f"{name}: exceeds {most:g} in a row: rescale it by a factor that no row "
                "decided, or give a larger --exponent"
            )
    limit = float(np.ldexp(float(MAX_CODE), int(options.get("target_exponent", -16))))
    if not rows.classes and (np.abs(rows.labels) > limit).any():
        raise DatasetError(
            f"label: exceeds {limit:g} in a row: rescale it by a factor that no row decided, "
            "or give a larger --target-exponent"
        )


def _check_alpha(rows: RecipeRows, options: Mapping[str, Any]) -> None:
    """Sum the rows to be sent as the service does, and refuse what it would refuse then."""
    from lethe.estimators.sums.config import RIDGE, SumsConfig
    from lethe.estimators.sums.sealed import of_nothing

    if options["estimator"] not in RIDGE:
        return
    kept = ~rows.is_test
    weights = np.ones(len(kept)) if rows.weights is None else rows.weights
    given = {name: value for name, value in options.items() if name != "estimator"}
    columns, classes = rows.features.shape[1], len(rows.classes)
    with refusing():
        config = SumsConfig(
            kind=options["estimator"], columns=columns, classes=classes, **given
        )
        coded = config.coded(rows.features[kept], rows.labels[kept], weights[kept])
        of_nothing(config).changed(coded, 1).check_solvable()


def rounded(name: str, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights as multiples of 1/16. Raises DatasetError, naming their column."""
    found: NDArray[np.float64] = np.rint(weights * STEPS) / STEPS
    if (found > MOST).any():
        raise DatasetError(f"{name}: is above {MOST:g} in a row: divide all weights")
    if ((found == 0) & (weights > 0)).any():
        raise DatasetError(
            f"{name}: would be 0 in a row when rounded to multiples of 1/{STEPS}: multiply all "
            "weights"
        )
    return found
