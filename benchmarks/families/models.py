"""The families' models as a fold of the benchmark uses them: fit, predict, delete, verify."""

from collections.abc import Mapping
from typing import Any, Protocol

import click
import numpy as np
from numpy.typing import NDArray

from app.schemas.families.manifests import MANIFESTS
from lethe.estimators import verify_removal
from lethe.estimators.forest.bins import Bins
from models import Model
from workers.demo import program
from workers.families.forest.family import ForestFamily
from workers.families.recipe.rows import TableBlock, all_digests, digest_of_rows
from workers.families.recipe.updated import UpdatedFamily
from workers.families.sums.family import SumsFamily
from workers.registration import forest, sums
from workers.training.programs import run
from workers.training.recipes import process
from workers.training.recipes.files import decode
from workers.training.recipes.fit import FitRows
from workers.training.recipes.process import Limits, RecipeFitter
from workers.training.recipes.recipe import Recipe
from workers.training.shards.container import shard_of
from workers.training.shards.predict import ShardedModel

Numbers = NDArray[Any]
SHARDS = 8
LIMITS = Limits(seconds=600, memory=8 << 30)
BOOSTING = {
    "steps": [
        {
            "estimator": "sklearn.ensemble.HistGradientBoostingClassifier",
            "parameters": {"max_iter": 50},
        }
    ],
    "seed": 0,
    "threads": 1,
}


class Fitted(Protocol):
    """A fitted model of a family, as one fold of the benchmark uses it."""

    def predict(self, features: Numbers) -> Numbers:
        """Return the labels of rows."""

    def delete(self, row: int) -> None:
        """Unlearn a row, by its place in what was fitted, where those before it have left."""

    def verify(self, features: Numbers, labels: Numbers) -> None:
        """Do what a verdict on the last deletion needs. Raises if it is refuted."""


class Estimator:
    """One of `lethe.estimators`, in which a deletion updates the model."""

    def __init__(self, model: Any, features: Numbers, labels: Numbers) -> None:
        self.model = model.fit(features, labels)

    def predict(self, features: Numbers) -> Numbers:
        """Return the labels of rows."""
        found: Numbers = self.model.predict(features)
        return found

    def delete(self, row: int) -> None:
        """Unlearn a row."""
        self.proof = self.model.unlearn([row])

    def verify(self, features: Numbers, labels: Numbers) -> None:
        """Fit to the rest and compare the bytes."""
        verify_removal(self.model, self.proof, features, labels)


class Updated:
    """A model of a family that updates a sealed state: open, remove, publish, seal.

    manifest: what the family registers beside the columns and the classes.
    """

    def __init__(
        self,
        family: UpdatedFamily[Any],
        manifest: Mapping[str, Any],
        features: Numbers,
        labels: Numbers,
    ) -> None:
        self.family = family
        numbers = labels.dtype.kind == "f"
        names = [] if numbers else [f"class {one}" for one in range(int(labels.max()) + 1)]
        wanted = MANIFESTS[manifest["family"]].model_validate(
            {**manifest, "ref": "m", "classes": names}
        )
        self.model = Model(ref="m", tombstone_key=b"", **wanted.pinned())
        records = [f"r{place}" for place in range(len(features))]
        self.salts = {one: one.encode().ljust(32, b".") for one in records}
        targets = labels.astype(np.float64 if numbers else np.int64)
        self.block = TableBlock(records, features.astype(np.float64), targets)
        digests = all_digests([self.block], self.salts)
        self._publish(self.family.fitted(self.model, [self.block]), digests)

    def _publish(self, state: Any, digests: Mapping[str, bytes]) -> None:
        self.file = self.family.published(self.model, state)
        data = digest_of_rows(digests.values())
        self.state = self.family.seal(state, len(digests), data)

    def predict(self, features: Numbers) -> Numbers:
        """Return the labels of rows."""
        if self.family.method == "forest-exact":
            return forest.predicted(self.file, features.astype(np.float64), None)
        return sums.predicted(self.file, features.astype(np.float64))

    def delete(self, row: int) -> None:
        """Subtract the first row that is left."""
        first = np.arange(len(self.block.records)) == 0
        digests = all_digests([self.block], self.salts)
        data = digest_of_rows(digests.values())
        state = self.family.opened(self.model, self.state, [self.block], data)
        if state is None:
            raise click.ClickException("the sealed state is not of its rows")
        state = self.family.remove(state, [self.block.only(first)])
        del digests[self.block.records[0]]
        self._publish(state, digests)
        self.block = self.block.only(~first)

    def verify(self, features: Numbers, labels: Numbers) -> None:
        """Fit anew and compare the bytes."""
        digest_of_rows(all_digests([self.block], self.salts).values())
        rows = FitRows(features.astype(np.float64), labels.astype(self.block.labels.dtype))
        if self.family.fitted_file(self.model, rows) != self.file:
            raise click.ClickException("a fit has another file than the update")


def summed(estimator: str, features: Numbers, labels: Numbers) -> Fitted:
    """Return ridge or naive Bayes as the service updates it."""
    options = {"columns": features.shape[1], "sums": {"estimator": estimator}}
    return Updated(SumsFamily(), {"family": "sums", **options}, features, labels)


def served_forest(features: Numbers, labels: Numbers) -> Fitted:
    """Return a forest as the service updates it; its edges are of a fifth of the rows."""
    edges = [own.tolist() for own in Bins.of_public_rows(features[::5]).edges]
    options = {"edges": edges, "forest": {"trees": 100, "seed": 0}}
    return Updated(ForestFamily(), {"family": "forest", **options}, features, labels)


class Refitted:
    """A recipe, in which a deletion is a fit in a process of its own, and a verdict another."""

    def __init__(self, features: Numbers, labels: Numbers) -> None:
        self.rows = features, labels
        self.recipe = Recipe.parse(BOOSTING)
        self.file = self._fit(features, labels)

    def _fit(self, features: Numbers, labels: Numbers) -> bytes:
        rows = FitRows(np.ascontiguousarray(features, np.float64), labels.astype(np.int64))
        return process.fit(self.recipe, rows, 1, LIMITS)

    def predict(self, features: Numbers) -> Numbers:
        """Return the labels of rows."""
        return decode(self.file).predict(features.astype(np.float64))

    def delete(self, row: int) -> None:
        """Fit without a row."""
        features, labels = self.rows
        self.rows = features[1:], labels[1:]
        self.file = self._fit(*self.rows)

    def verify(self, features: Numbers, labels: Numbers) -> None:
        """Fit once more and compare the bytes."""
        if self._fit(features, labels) != self.file:
            raise click.ClickException("two fits of a recipe differ")


class Program(Refitted):
    """A script, in which a deletion is a run in isolation, and a verdict another."""

    def __init__(self, features: Numbers, labels: Numbers) -> None:
        script = {"output": "safetensors", "threads": 1, "tolerance": None, "predict": None}
        self.config = {
            "classes": int(labels.max()) + 1,
            "columns": features.shape[1],
            "script": {**program.document(), **script},
        }
        super().__init__(features, labels)

    def _fit(self, features: Numbers, labels: Numbers) -> bytes:
        rows = FitRows(np.ascontiguousarray(features, np.float64), labels.astype(np.int64))
        return run.execute(self.config, rows, LIMITS)

    def predict(self, features: Numbers) -> Numbers:
        """Return the labels of rows."""
        return program.predict(self.file, features.astype(np.float64))


class ShardedRecipe:
    """A recipe in shards: a deletion fits one of them, and a verdict that one once more."""

    def __init__(self, features: Numbers, labels: Numbers) -> None:
        self.fitter = RecipeFitter(Recipe.parse(BOOSTING), LIMITS)
        self.features = np.ascontiguousarray(features, np.float64)
        self.labels = labels.astype(np.int64)
        names = [f"record\0{row}" for row in range(len(labels))]
        self.of = np.array([shard_of(b"key", name, SHARDS) for name in names])
        self.files = self.fitter.fit([self._rows(own, 0) for own in range(SHARDS)])
        self.last = 0  # deleted

    def _rows(self, shard: int, first: int) -> FitRows:
        places = first + np.flatnonzero(self.of[first:] == shard)
        return FitRows(self.features[places], self.labels[places])

    def predict(self, features: Numbers) -> Numbers:
        """Return the labels of rows."""
        shards = tuple(map(decode, self.files))
        return ShardedModel("mean", shards).predict(features.astype(np.float64))

    def delete(self, row: int) -> None:
        """Fit the shard that has a row, without it and those before it."""
        self.last = row
        (self.files[self.of[row]],) = self.fitter.fit([self._rows(self.of[row], row + 1)])

    def verify(self, features: Numbers, labels: Numbers) -> None:
        """Fit the shard of the last deletion once more and compare the bytes."""
        shard = self.of[self.last]
        places = self.of[-len(labels) :] == shard
        rows = FitRows(
            np.ascontiguousarray(features[places], np.float64), labels[places].astype(np.int64)
        )
        if self.fitter.fit([rows]) != [self.files[shard]]:
            raise click.ClickException("two fits of a shard differ")
