"""A recipe's model for scikit-learn: its own estimator or pipeline, as skops writes it.

Nothing in such a file is code: skops builds the classes of scikit-learn that it names.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from workers.errors import RefusedError
from workers.families.recipe.export_trees import NATIVE
from workers.libraries import require
from workers.training.recipes.files import decode


def export(artifact: bytes, classes: Sequence[str]) -> bytes:
    """Return the fitted estimator of a recipe's file, whose labels are the names of classes.

    Raises:
        ArtifactError: It is not a recipe's file.
        RefusedError: No row is left in the model, a step is not scikit-learn's, or skops cannot
            write one.
        MissingLibraryError: A library is not installed.
    """
    fitted = decode(artifact)
    if fitted.estimator is None:
        raise RefusedError("no row is left in this model: it predicts nothing")
    steps = fitted.steps
    _check(steps)
    if fitted.recipe.classifies:
        # The fit used indices of the classes that its rows had.
        steps[-1].classes_ = np.array([classes[place] for place in fitted.classes])
    return dump(fitted.estimator, steps)


def dump(estimator: Any, steps: Sequence[Any]) -> bytes:
    """Return an estimator as skops writes it. steps: all estimators within it.

    Raises:
        RefusedError: One is not scikit-learn's, or skops cannot write it.
        MissingLibraryError: skops is not installed.
    """
    skops = require("skops.io", "export")
    _check(steps)
    try:
        data: bytes = skops.dumps(estimator)
        # skops reports scikit-learn's own trees as untrusted; the loading user must trust them.
        if any(not one.startswith("sklearn.") for one in skops.get_untrusted_types(data=data)):
            raise TypeError
    except (TypeError, ValueError, NotImplementedError):
        raise RefusedError(f"skops cannot hold this estimator: {NATIVE}, or ONNX") from None
    return data


def _check(steps: Sequence[Any]) -> None:
    if any(not type(one).__module__.startswith("sklearn.") for one in steps):
        raise RefusedError(f"skops holds estimators of scikit-learn: {NATIVE}, or ONNX")
