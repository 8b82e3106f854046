"""Predictions of a sharded model: the mean of its shards, their vote, or each apart."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.errors import ArtifactError, RefusedError
from workers.training.recipes import files
from workers.training.recipes.files import FittedRecipe
from workers.training.shards import container

AGGREGATES = ("mean", "vote", "apart")


@dataclass(frozen=True, slots=True, eq=False)
class ShardedModel:
    """The content of a version's file. shards: by number, None for one without rows."""

    aggregate: str
    shards: tuple[FittedRecipe | None, ...]

    @classmethod
    def from_bytes(cls, data: bytes) -> "ShardedModel":
        """Return the model of a file, after checking each shard against the manifest.

        Raises:
            ArtifactError: It is no such file, a shard has another digest, or the shards are of
                different recipes.
            RefusedError: A library of its estimators is not installed here.
        """
        manifest, found = container.decode(data)
        for entry, file in zip(manifest.shards, found, strict=True):
            if hashlib.sha256(file).hexdigest() != entry.file:
                raise ArtifactError(
                    "a shard's SHA-256 is not the one in the manifest: fetch the file again"
                )
        shards = [files.decode(file) for file in found]
        # Otherwise answers of different kinds or widths would be added up.
        kinds = [(one.recipe.document, one.columns) for one in shards]
        if manifest.aggregate not in AGGREGATES or any(one != kinds[0] for one in kinds):
            raise ArtifactError(
                "the shards are of different recipes or columns, or `aggregate` is "
                "none of mean, vote and apart: fetch the file again"
            )
        own = tuple(None if one.estimator is None else one for one in shards)
        return cls(manifest.aggregate, own)

    def predict(self, features: NDArray[np.float64]) -> NDArray[Any]:
        """Return for each row of (n, columns) its class position or its number.

        For shards that answer apart: (shards, n), with -1 or NaN for one without rows. Raises
        RefusedError if no shard has rows left.
        """
        fitted = [one for one in self.shards if one is not None]
        if not fitted:
            raise RefusedError("no row is left in this model: it predicts nothing")
        classifies = fitted[0].recipe.classifies
        if self.aggregate == "apart":
            none = np.full(len(features), -1 if classifies else np.nan)
            answers = [none if one is None else one.predict(features) for one in self.shards]
            return np.stack(answers).astype(np.int64 if classifies else np.float64)
        if not classifies:
            numbers: NDArray[Any] = np.stack([one.predict(features) for one in fitted])
            return np.asarray(numbers.mean(axis=0))
        return np.asarray(self._scores(fitted, features).argmax(axis=1))

    def probabilities(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (n, classes), over the classes up to the last that any shard has seen.

        The mean of the shards' probabilities or, for a vote, the share of the shards. Raises
        RefusedError as `predict`, and for shards that answer apart or predict numbers.
        """
        fitted = [one for one in self.shards if one is not None]
        if not fitted or self.aggregate == "apart" or not fitted[0].recipe.classifies:
            raise RefusedError(
                "this model has no probabilities: its shards predict numbers, answer "
                "apart or have no rows; use `predict`"
            )
        return self._scores(fitted, features) / len(fitted)

    def _scores(
        self, fitted: list[FittedRecipe], features: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return sums over the shards, (n, classes); ties go to the first class."""
        width = 1 + max(max(one.classes) for one in fitted)
        found = np.zeros((len(features), width))
        for one in fitted:
            if self.aggregate == "vote":
                found[np.arange(len(features)), one.predict(features)] += 1
            else:
                found[:, list(one.classes)] += one.probabilities(features)
        return found


def decode(data: bytes) -> ShardedModel:
    """Return the model of a version's file. Raises as `ShardedModel.from_bytes`."""
    return ShardedModel.from_bytes(data)
