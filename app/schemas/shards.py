"""Shards on the wire: a recipe that is fitted to each share of the rows by itself."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from app.schemas.base import Wire
from app.schemas.recipes import OfRecipe
from lethe.catalogue import ShardsMethod

# Classifiers without probabilities, and the losses with which SGDClassifier has them.
NO_PROBABILITIES = ("sklearn.linear_model.RidgeClassifier", "sklearn.svm.LinearSVC")
SGD, WITH_PROBABILITIES = "sklearn.linear_model.SGDClassifier", ("log_loss", "modified_huber")


class ShardOptions(Wire):
    """How rows are spread over shards, and how these answer.

    by: subject: all rows of a subject are in one shard; record: each row by itself. aggregate:
    mean of the probabilities or numbers; vote: the class of most; apart: each for itself.
    """

    count: int = Field(ge=2, le=256)
    by: Literal["subject", "record"] = "subject"
    aggregate: Literal["mean", "vote", "apart"] = "mean"


class NewShards(OfRecipe):
    """The "manifest" part of POST /v1/models for shards.

    An erasure fits the recipe again in the shards that held the records.
    """

    family: Literal["shards"]
    method: ShardsMethod = "refit-shards"
    shards: ShardOptions

    @model_validator(mode="after")
    def _can_be_aggregated(self) -> Self:
        if self.shards.aggregate == "vote" and not self.recipe.classifies:
            raise ValueError("shards.aggregate: only classes can be voted on: choose mean")
        if self.shards.aggregate == "mean" and not self._has_probabilities():
            raise ValueError("shards.aggregate: the recipe gives no probabilities: choose vote")
        return self

    def _has_probabilities(self) -> bool:
        last = self.recipe.spelled()["steps"][-1]
        if last["estimator"] == SGD:
            return last["parameters"].get("loss") in WITH_PROBABILITIES
        return last["estimator"] not in NO_PROBABILITIES

    def pinned(self) -> dict[str, Any]:
        """Return what the log holds the model to, by its digest."""
        return self.pinned_as(self.family, self.method, shards=self.shards.model_dump())
