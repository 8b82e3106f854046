"""Recipes on the wire: an estimator by its import path, its parameters and a seed.

The API knows the names of the classes; a worker checks the parameters of a class.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from app.schemas.base import Finite, Whole, Wire
from app.schemas.families.tables import TableManifest
from app.schemas.models import Name, Word
from lethe.catalogue import CLASSIFIERS, REGRESSORS, TRANSFORMERS, RecipeClass, RecipeMethod

Parameter = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z][a-zA-Z0-9_]{0,39}$")]
Value = bool | Whole | Finite | Word | None
Values = Annotated[
    list[Value | Annotated[list[Value], Field(max_length=1000)]], Field(max_length=1000)
]


def _plain(value: Any) -> Any:
    """Return a parameter's value in JSON with a unique spelling.

    RFC 8785 writes 1.0 as 1, but in scikit-learn 1.0 can mean all columns and 1 one column.
    """
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return {"float": repr(value)} if isinstance(value, float) else value


def _spelled(estimator: str, parameters: dict[str, Any]) -> dict[str, Any]:
    named = {name: _plain(value) for name, value in parameters.items()}
    return {"estimator": estimator, "parameters": named}


class RecipeStep(Wire):
    """A transformer or the estimator, and its parameters that differ from the defaults."""

    estimator: RecipeClass
    parameters: dict[Parameter, Value | Values] = Field(default_factory=dict, max_length=64)


class RecipeDocument(Wire):
    """What is fitted: an estimator, or transformers and an estimator last.

    seed: of every random step. threads: how many a fit uses; without it the fit must give equal
    bytes with one thread and with several, which is tested at registration.
    """

    estimator: RecipeClass | None = None
    parameters: dict[Parameter, Value | Values] = Field(default_factory=dict, max_length=64)
    steps: list[RecipeStep] = Field(default_factory=list, max_length=16)
    seed: int = Field(default=0, ge=0, le=2**31 - 1)
    threads: int | None = Field(default=None, ge=1, le=256)

    @model_validator(mode="after")
    def _ends_in_an_estimator(self) -> Self:
        if (self.estimator is None) == (not self.steps) or (self.steps and self.parameters):
            raise ValueError("give either estimator and parameters, or steps")
        *first, last = self.spelled()["steps"]
        for step in first:
            if step["estimator"] not in TRANSFORMERS:
                raise ValueError(f"steps: {step['estimator']} is no transformer")
        if last["estimator"] not in (*CLASSIFIERS, *REGRESSORS):
            raise ValueError(f"steps: {last['estimator']} is no estimator to end in")
        return self

    def spelled(self) -> dict[str, Any]:
        """Return the registered form: always steps, even for a single estimator."""
        if self.estimator is not None:
            steps = [_spelled(self.estimator, self.parameters)]
        else:
            steps = [_spelled(one.estimator, one.parameters) for one in self.steps]
        return {"steps": steps, "seed": self.seed, "threads": self.threads}

    @property
    def classifies(self) -> bool:
        """Whether it predicts classes, not numbers."""
        return self.spelled()["steps"][-1]["estimator"] in CLASSIFIERS


def check_classes(recipe: RecipeDocument, classes: list[str]) -> None:
    """Raise ValueError if the names of classes do not fit a recipe's estimator."""
    if recipe.classifies and len(classes) < 2:
        raise ValueError("classes: name at least two, the recipe is a classifier")
    if not recipe.classifies and classes:
        raise ValueError("classes: leave them out, the recipe predicts numbers")
    if len(set(classes)) != len(classes):
        raise ValueError("classes: name each once")


class NewRecipe(TableManifest):
    """The "manifest" part of POST /v1/models for a recipe.

    classes: names, of a classifier; none of a regressor, whose labels are numbers. An erasure
    fits the recipe again on the retained rows.
    """

    family: Literal["recipe"]
    method: RecipeMethod = "refit"
    classes: list[Name] = Field(default_factory=list, max_length=10_000)
    recipe: RecipeDocument

    @model_validator(mode="after")
    def _fits(self) -> Self:
        check_classes(self.recipe, self.classes)
        return self

    def pinned(self) -> dict[str, Any]:
        """Return the pinned configuration, whose digest is logged at registration."""
        return self.of_rows(**self.pinned_columns(), recipe=self.recipe.spelled())
