"""A recipe: an estimator of the catalogue, by import path, with parameters and a seed.

No part of it is code: the class is looked up in the catalogue, parameters are JSON, and no
stored estimator is ever unpickled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.catalogue import CLASSIFIERS, REGRESSORS, TRANSFORMERS
from workers.errors import RefusedError
from workers.libraries import with_extra

# Parameters that no recipe may set, with the reason in the refusal.
FIXED: Mapping[str, str] = {
    "callbacks": "it is code",
    "categorical_features": "declare `categories` beside it: estimators see numbers",
    "class_prior": "an erasure may remove a class",
    "device": "fits run on the processor",
    "early_stopping_rounds": "it needs rows outside the recipe",
    "enable_categorical": "declare `categories` beside it: estimators see numbers",
    "eval_metric": "it needs rows outside the recipe",
    "feature_types": "declare `categories` beside it: estimators see numbers",
    "n_jobs": "the worker sets it; `threads` of the recipe limits it",
    "priors": "an erasure may remove a class",
    "random_state": "set `seed` of the recipe instead",
    "validate_parameters": "it is always on",
    "verbose": "it prints",
    "verbosity": "it prints",
    "warm_start": "a refit starts from nothing",
}
# `deterministic` and one way of building histograms: LightGBM otherwise chooses one by
# timing.
ALWAYS: Mapping[str, Mapping[str, Any]] = {
    "lightgbm": {"deterministic": True, "force_row_wise": True, "verbose": -1},
    "xgboost": {"validate_parameters": True, "verbosity": 0},
}


@dataclass(frozen=True, slots=True)
class RecipeStep:
    """A transformer or the estimator. parameters: those that differ from its defaults."""

    estimator: str
    parameters: Mapping[str, Any]

    @property
    def library(self) -> str:
        """The top-level module, such as lightgbm."""
        return self.estimator.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Transformers and an estimator last. threads: of a fit, None for any number.

    seed: for every randomised step. A recipe without `threads` must give equal bytes with one
    thread and with several, which registration checks.
    """

    steps: tuple[RecipeStep, ...]
    seed: int
    threads: int | None

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> "Recipe":
        """Return the recipe of a document in the form of `document`. Raises RefusedError."""
        try:
            steps = tuple(
                RecipeStep(
                    str(one["estimator"]),
                    {name: _value(value) for name, value in one["parameters"].items()},
                )
                for one in document["steps"]
            )
            return cls(steps, int(document["seed"]), document["threads"])
        except (AttributeError, KeyError, TypeError, ValueError):
            raise RefusedError(
                "the recipe in the model's configuration cannot be read: register the "
                "model again"
            ) from None

    @property
    def document(self) -> dict[str, Any]:
        """The canonical JSON that is registered, logged and written into model files."""
        steps = [
            {
                "estimator": one.estimator,
                "parameters": {name: _plain(value) for name, value in one.parameters.items()},
            }
            for one in self.steps
        ]
        return {"steps": steps, "seed": self.seed, "threads": self.threads}

    @property
    def classifies(self) -> bool:
        """Whether it predicts classes rather than numbers."""
        return self.steps[-1].estimator in CLASSIFIERS


def _plain(value: Any) -> Any:
    """Return a value as JSON that keeps its type: RFC 8785 writes 1.0 and 1 alike."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return {"float": repr(value)} if isinstance(value, float) else value


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_value(one) for one in plain]
    return float(plain["float"]) if isinstance(plain, dict) else plain


def check(recipe: Recipe) -> None:
    """Return if this worker can build a recipe.

    Raises RefusedError, naming the class or parameter, if it is unknown, has a wrong type or
    may not be set.
    """
    *first, last = recipe.steps or (RecipeStep("", {}),)
    for step in first:
        if step.estimator not in TRANSFORMERS:
            raise RefusedError(
                f"{step.estimator}: not a transformer that a recipe may name; "
                "docs/recipes.md lists them"
            )
    if last.estimator not in (*CLASSIFIERS, *REGRESSORS):
        raise RefusedError(
            f"{last.estimator}: not an estimator that a recipe may end in; "
            "docs/recipes.md lists them"
        )
    for step in recipe.steps:
        _check_parameters(step)


def build(recipe: Recipe, threads: int) -> Any:
    """Return the unfitted estimator, a scikit-learn pipeline if it has transformers.

    Raises as `check`.
    """
    check(recipe)
    made = []
    for step in recipe.steps:
        known = known_parameters(step)
        given = {name: _frozen(value) for name, value in step.parameters.items()}
        own = {"random_state": recipe.seed, "n_jobs": threads}
        given |= {name: value for name, value in own.items() if name in known}
        made.append(_class(step)(**given, **ALWAYS.get(step.library, {})))
    if len(made) == 1:
        return made[0]
    from sklearn.pipeline import Pipeline

    return Pipeline([(str(place), one) for place, one in enumerate(made)])


def known_parameters(step: RecipeStep) -> dict[str, Any]:
    """Return the parameters of a step's class with their defaults. Raises RefusedError."""
    found: dict[str, Any] = _class(step)().get_params(deep=False)
    return found


def _check_parameters(step: RecipeStep) -> None:
    known = known_parameters(step)
    for name, value in step.parameters.items():
        where = f"{name} of {step.estimator}"
        if name in FIXED:
            raise RefusedError(f"{where}: a recipe cannot set it, {FIXED[name]}")
        if name not in known:
            choice = ", ".join(sorted(known.keys() - FIXED.keys()))
            raise RefusedError(f"{where}: no such parameter, choose among {choice}")
        _check_json(where, value)
        if step.library == "lightgbm":
            _check_words(where, value)
        if step.library != "sklearn":
            _check_type(where, known[name], value)
    if step.library != "sklearn":
        return
    try:
        given = {name: _frozen(value) for name, value in step.parameters.items()}
        _class(step)(**given)._validate_params()
    except ValueError as error:  # it names the parameter, and has seen no row
        raise RefusedError(f"{step.estimator}: {error}") from None


def _check_json(where: str, value: Any) -> None:
    if isinstance(value, list):
        for one in value:
            _check_json(where, one)
    elif value is not None and not isinstance(value, bool | int | float | str):
        raise RefusedError(f"{where}: give a number, a text, true, false, null or a list")


def _check_words(where: str, value: Any) -> None:
    """Check texts for LightGBM, which joins all parameters to `name=value name=value`.

    A parameter smuggled into a text could set what no recipe may: files to read, other
    machines.
    """
    if isinstance(value, list):
        for one in value:
            _check_words(where, one)
    elif isinstance(value, str) and ("=" in value or value.split() not in ([value], [])):
        raise RefusedError(f"{where}: give one word without = and spaces")


def _check_type(where: str, default: Any, value: Any) -> None:
    """Check a parameter of LightGBM or XGBoost against its default's type, if any."""
    wanted = {bool: (bool,), int: (int,), float: (int, float), str: (str,)}.get(type(default))
    if wanted is None or value is None:
        return
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        named = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
        raise RefusedError(f"{where}: give {named[type(default)]}")


def _frozen(value: Any) -> Any:
    """Return lists as tuples, which scikit-learn requires for pairs."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _class(step: RecipeStep) -> Any:
    if step.estimator not in (*CLASSIFIERS, *REGRESSORS, *TRANSFORMERS):
        raise RefusedError(f"{step.estimator}: not a class that a recipe may name")
    module, _, name = step.estimator.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError:
        raise RefusedError(
            f"{step.library} is not installed here: {with_extra('recipes')}"
        ) from None


def libraries(recipe: Recipe) -> Sequence[str]:
    """Return the distributions whose versions decide the bits of a fit, sorted."""
    named = {"lightgbm": "lightgbm", "xgboost": "xgboost-cpu"}
    used = {named[one.library] for one in recipe.steps if one.library in named}
    return sorted({"numpy", "scikit-learn", "scipy", *used})


# Whether a recipe accepts a table's missing values and weights.
#
# Estimators declare it, so an operator learns which column is a problem before any row is sent.
# The fit itself still decides.
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
