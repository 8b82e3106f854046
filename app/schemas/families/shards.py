"""Shards on the wire: a recipe or script, fitted to each share of the rows separately."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from app.schemas.base import Wire
from app.schemas.families.recipes import RecipeDocument, check_classes
from app.schemas.families.scripts import ScriptDocument, check_names
from app.schemas.families.tables import TableManifest
from app.schemas.models import Name
from lethe.catalogue import ShardsMethod

# Classifiers without probabilities, and the losses for which SGDClassifier has them.
NO_PROBABILITIES = ("sklearn.linear_model.RidgeClassifier", "sklearn.svm.LinearSVC")
SGD, WITH_PROBABILITIES = "sklearn.linear_model.SGDClassifier", ("log_loss", "modified_huber")


class ShardOptions(Wire):
    """How rows are distributed over shards, and how the shards' answers are combined.

    by: subject: all rows of a subject are in one shard; record: each row separately. aggregate:
    mean of the probabilities or numbers; vote: the majority's class; apart: not combined, as
    always for a script.
    """

    count: int = Field(ge=2, le=256)
    by: Literal["subject", "record"] = "subject"
    aggregate: Literal["mean", "vote", "apart"] = "mean"


class NewShards(TableManifest):
    """The "manifest" part of POST /v1/models for shards of a recipe or of a script.

    classes: names, or none where labels are numbers. An erasure fits the recipe again, or runs
    the program, in the shards that held the records.
    """

    family: Literal["shards"]
    method: ShardsMethod = "refit-shards"
    classes: list[Name] = Field(default_factory=list, max_length=10_000)
    recipe: RecipeDocument | None = None
    script: ScriptDocument | None = None
    shards: ShardOptions

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.recipe is None) == (self.script is None):
            raise ValueError("give either recipe or script")
        if self.recipe is not None:
            check_classes(self.recipe, self.classes)
            self._check_aggregate(self.recipe)
        if self.script is not None:
            check_names(self.classes)
            self._check_script(self.script)
        return self

    def _check_aggregate(self, recipe: RecipeDocument) -> None:
        if self.shards.aggregate == "vote" and not recipe.classifies:
            raise ValueError("shards.aggregate: only classes can be voted on: choose mean")
        if self.shards.aggregate == "mean" and not _has_probabilities(recipe):
            raise ValueError("shards.aggregate: the recipe gives no probabilities: choose vote")

    def _check_script(self, script: ScriptDocument) -> None:
        if self.shards.aggregate != "apart":
            raise ValueError("shards.aggregate: models of a script answer apart")
        if script.tolerance is not None:
            raise ValueError("script.tolerance: in shards two runs must write equal bytes")
        if script.weights is not None:
            raise ValueError("script.weights: shards are compared with no other model")

    def pinned(self) -> dict[str, Any]:
        """Return the pinned configuration, whose digest is logged at registration."""
        config = {**self.pinned_columns(), "shards": self.shards.model_dump()}
        if self.recipe is not None:
            config["recipe"] = self.recipe.spelled()
        if self.script is not None:
            config |= {"classes": len(self.classes), "script": self.script.pinned()}
        return self.of_rows(**config)


def _has_probabilities(recipe: RecipeDocument) -> bool:
    last = recipe.spelled()["steps"][-1]
    if last["estimator"] == SGD:
        return last["parameters"].get("loss") in WITH_PROBABILITIES
    return last["estimator"] not in NO_PROBABILITIES
