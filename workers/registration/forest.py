"""Pack labelled rows and the options of a forest as a registration for POST /v1/models."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.errors import RefusedError, refusing
from workers.registration.recipe import RecipeRegistration, RecipeRows, pack

# Members for the forest's file; the rest configures the trees.
OWN = ("edges", "missing", "numbers")


def prepare_forest(
    rows: RecipeRows,
    options: Mapping[str, Any],
    *,
    ref: str,
    public: NDArray[np.float64] | None = None,
    held_out_bins: bool = False,
) -> RecipeRegistration:
    """Pack the rows that are not held out, with the manifest for them.

    options: of the file, see docs/forests.md. public: rows (n, d) that are never erased; their
    quantiles become the edges of the bins if the options declare none. held_out_bins: the
    held-out rows are packed too, as records of the model: the worker computes the edges from
    them, and the manifest's edges apply only to features without a value in any of them.

    Raises RefusedError if the public rows make no bins, or no row is held out to make them.
    """
    if held_out_bins and not rows.is_test.any():
        raise RefusedError(
            "--bins held-out: no row is held out: hold some out with --holdout, or with "
            "is_test in an .npz, or leave the option out"
        )
    edges = options.get("edges")
    if edges is None:
        edges = _edges(rows.features.shape[1], options, public)
    manifest = {
        "family": "forest",
        "ref": ref,
        "classes": list(rows.classes),
        "edges": edges,
        "missing": options.get("missing", False),
        "forest": {name: value for name, value in options.items() if name not in OWN},
    }
    if rows.names:
        manifest["features"] = list(rows.names)
    if held_out_bins:
        manifest["bins"] = "held-out"
    return pack(rows, manifest, bins=held_out_bins)


def predict(file: bytes, registration: RecipeRegistration) -> NDArray[Any]:
    """Return a forest file's predictions for the held-out rows, as `predicted`."""
    manifest = registration.manifest
    step = None if manifest["classes"] else float(manifest["forest"].get("step", 2**-10))
    return predicted(file, registration.features, step)


def predicted(file: bytes, features: NDArray[np.float64], step: float | None) -> NDArray[Any]:
    """Return a forest file's predictions for rows (n, d): class indices, or numbers.

    step: of numbers; None if there are classes. Raises RefusedError for another file.
    """
    from lethe.estimators.forest.published import PublishedForest

    with refusing():
        forest = PublishedForest.from_bytes(file)
        if step is None:
            found: NDArray[Any] = forest.probabilities(features).argmax(axis=1)
        else:
            found = forest.means(features) * step
    return found


def _edges(
    width: int, options: Mapping[str, Any], public: NDArray[np.float64] | None
) -> list[list[float]]:
    from lethe.estimators.forest.bins import DEFAULT_EDGES, Bins

    if public is None:
        return [DEFAULT_EDGES.tolist()] * width
    if public.shape[1] != width:
        raise RefusedError(f"the public rows have {public.shape[1]} features, DATA has {width}")
    with refusing():
        bins = Bins.of_public_rows(public, missing=bool(options.get("missing", False)))
    return [own.tolist() for own in bins.edges]
