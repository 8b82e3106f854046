"""What each family of models costs and is worth, beside the library that people would use.

    python -m benchmarks.families [--quick] [--family NAME]... [--data FILE]... [--json FILE]
        [--page FILE]

For each family and data set: accuracy by cross-validation, with the same folds for the
reference; how long a fit takes beside the reference's; how many times faster a deletion is than
a fit, and how many times with the verifier's own fit, which is what a certificate needs. Times
are of processors, of child processes too. FILE is an .npz with `features` and `labels`.

Models of integer sums and recipes are measured by the service's code: of sums, what it computes
for a deletion between reading the sealed rows and writing the new version, digests of all rows
included. A forest is measured as an estimator. Of a vector index accuracy is recall@10
beside exhaustive search by numpy.
"""

import json
import platform
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Protocol

import click
import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.preprocessing import StandardScaler

from app.schemas.sums import NewSums
from benchmarks import vector_index
from benchmarks.forest import sample
from lethe.estimators import ExactForestClassifier, verify_removal
from lethe.estimators.sums.published import read_published
from models import Model
from workers.demo import program
from workers.families.recipe.rows import TableBlock, all_digests, digest_of_rows
from workers.families.sums.family import SumsFamily
from workers.training.programs import run
from workers.training.recipes import process
from workers.training.recipes.files import decode
from workers.training.recipes.fit import FitRows
from workers.training.recipes.process import Limits, RecipeFitter
from workers.training.recipes.recipe import Recipe
from workers.training.shards.assignment import shard_of
from workers.training.shards.predict import ShardedModel

Numbers = NDArray[Any]
MADE = 50_000  # rows of the data set that is made: what is fixed in a deletion weighs less
SHARDS = 8
DELETIONS = 3  # single ones, of each fold
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


class Summed:
    """A model of the family `sums`, by its own code: open the state, subtract, solve, seal."""

    def __init__(self, estimator: str, features: Numbers, labels: Numbers) -> None:
        self.family = SumsFamily()
        names = [f"class {number}" for number in range(int(labels.max()) + 1)]
        manifest = NewSums.model_validate(
            {
                "family": "sums",
                "ref": "m",
                "classes": names,
                "columns": features.shape[1],
                "sums": {"estimator": estimator},
            }
        )
        self.model = Model(ref="m", tombstone_key=b"", **manifest.pinned())
        records = [f"r{place}" for place in range(len(features))]
        self.salts = {one: one.encode().ljust(32, b".") for one in records}
        self.block = TableBlock(records, features.astype(np.float64), labels.astype(np.int64))
        digests = all_digests([self.block], self.salts)
        self._publish(self.family.fitted(self.model, [self.block]), digests)

    def _publish(self, state: Any, digests: Mapping[str, bytes]) -> None:
        self.file = self.family.published(self.model, state)
        data = digest_of_rows(digests.values())
        self.state = self.family.seal(state, len(digests), data)

    def predict(self, features: Numbers) -> Numbers:
        """Return the labels of rows."""
        return read_published(self.file).predict(features.astype(np.float64))

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
        """Sum anew and compare the bytes."""
        digest_of_rows(all_digests([self.block], self.salts).values())
        rows = FitRows(features.astype(np.float64), labels.astype(np.int64))
        if self.family.fitted_file(self.model, rows) != self.file:
            raise click.ClickException("a fit has another file than the update")


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
        script = {"output": "safetensors", "threads": 1, "tolerance": None}
        self.config = {
            "classes": 2,
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


class Sharded:
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


@dataclass(frozen=True, slots=True)
class Family:
    """How a family and its reference are fitted. scaled: to mean 0 and deviation 1 first.

    score: of (predictions, rows fitted to, rows asked of, their labels).
    """

    fit: Callable[[Numbers, Numbers], Fitted]
    reference: Callable[[], ClassifierMixin | vector_index.Flat]
    scaled: bool = False
    score: Callable[[Numbers, Numbers, Numbers, Numbers], float] = (
        lambda found, known, asked, labels: float(np.mean(found == labels))
    )


def _vectors(kind: str) -> Family:
    def fit(features: Numbers, labels: Numbers) -> Fitted:
        return vector_index.Index(kind, features)

    return Family(fit, vector_index.Flat, score=vector_index.recall)


def _forest(features: Numbers, labels: Numbers) -> Fitted:
    return Estimator(ExactForestClassifier(100, public_rows=features[::5]), features, labels)


FAMILIES: Mapping[str, Family] = {
    "ridge-classifier": Family(
        lambda x, y: Summed("ridge-classifier", x, y), RidgeClassifier, scaled=True
    ),
    "gaussian-nb": Family(lambda x, y: Summed("gaussian-nb", x, y), GaussianNB),
    "multinomial-nb": Family(lambda x, y: Summed("multinomial-nb", x, y), MultinomialNB),
    "forest": Family(_forest, lambda: RandomForestClassifier(100, random_state=0, n_jobs=1)),
    "script": Family(Program, lambda: LogisticRegression(max_iter=1000), scaled=True),
    "recipe": Family(
        Refitted, lambda: HistGradientBoostingClassifier(max_iter=50, random_state=0)
    ),
    "shards": Family(
        Sharded, lambda: HistGradientBoostingClassifier(max_iter=50, random_state=0)
    ),
    **{f"vectors-{kind}": _vectors(kind) for kind in vector_index.KINDS},
}


@dataclass(frozen=True, slots=True)
class Figures:
    """One family on one data set. Ratios are of means over the folds."""

    rows: int
    fit_seconds_ratio: float
    delete_speedup: float
    verified_delete_speedup: float
    accuracy: float
    accuracy_reference: float


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds of processors that a call takes, with the processes that it ended."""
    before = _processors()
    work()
    return _processors() - before


def _processors() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measure(family: Family, features: Numbers, labels: Numbers, folds: int) -> Figures:
    """Return a family's figures. Raises if a deletion is not that of a fit without the row."""
    fits: list[float] = []
    references: list[float] = []
    deletions: list[float] = []
    verdicts: list[float] = []
    own: list[float] = []
    other: list[float] = []
    splits = StratifiedKFold(n_splits=folds, shuffle=True, random_state=0)
    for train, test in splits.split(features, labels):
        known, asked = features[train], features[test]
        if family.scaled:
            scaler = StandardScaler().fit(known)
            known, asked = scaler.transform(known), scaler.transform(asked)
        reference = family.reference()
        references.append(seconds(lambda: reference.fit(known, labels[train])))  # noqa: B023
        found = reference.predict(asked)
        other.append(family.score(found, known, asked, labels[test]))
        made: list[Fitted] = []
        fits.append(seconds(lambda: made.append(family.fit(known, labels[train]))))  # noqa: B023
        (model,) = made
        own.append(family.score(model.predict(asked), known, asked, labels[test]))
        for row in range(DELETIONS):
            deletions.append(seconds(lambda: model.delete(row)))  # noqa: B023
        rest = known[DELETIONS:], labels[train][DELETIONS:]
        verdicts.append(seconds(lambda: model.verify(*rest)))  # noqa: B023
    return Figures(
        rows=len(features),
        fit_seconds_ratio=mean(fits) / mean(references),
        delete_speedup=mean(fits) / mean(deletions),
        verified_delete_speedup=mean(fits) / (mean(deletions) + mean(verdicts)),
        accuracy=mean(own),
        accuracy_reference=mean(other),
    )


def data_sets(files: tuple[Path, ...], *, quick: bool) -> dict[str, tuple[Numbers, Numbers]]:
    """Return the data sets by name: scikit-learn's, a larger one that is made, and files."""
    found = {"breast_cancer": load_breast_cancer(return_X_y=True)}
    if not quick:
        found["digits"] = load_digits(return_X_y=True)
        found["made"] = make_classification(
            MADE, 30, n_informative=10, n_redundant=2, random_state=0
        )
    return found | {path.stem: sample(path, 500 if quick else 4000) for path in files}


HEAD = """# Families of tables

Each family beside the library that people would use, measured by
`python -m benchmarks.families --json FILE --page FILE`; `--data FILE` adds rows.

Accuracy is by cross-validation on the same folds; of a vector index it is recall@10 beside
exhaustive search. Times are of processors. Fit: the family's beside the reference's. Deletion:
how many times faster one deletion is than the family's own fit; verified: with the verifier's
own fit.
"""


def page(document: Mapping[str, Any]) -> str:
    """Return the Markdown page of a run's JSON."""
    if document["quick"]:
        extent = "A quick run: breast_cancer, two folds"
    else:
        extent = "A whole run: five folds, of the made rows two"
    lines = [*HEAD.splitlines(), "", f"{extent}, on {document['processor']}."]
    columns = ("family", "rows", "accuracy", "reference", "fit", "deletion", "verified")
    names = dict.fromkeys(one for own in document["families"].values() for one in own)
    for name in names:
        lines += ["", f"## {name}", "", f"| {' | '.join(columns)} |", "|---" * 7 + "|"]
        for family, own in document["families"].items():
            if name in own:
                found = Figures(**own[name])
                lines.append(
                    f"| {family} | {found.rows:,} | {found.accuracy:.4f} "
                    f"| {found.accuracy_reference:.4f} | {found.fit_seconds_ratio:.2f} "
                    f"| {found.delete_speedup:.1f} | {found.verified_delete_speedup:.2f} |"
                )
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--quick", is_flag=True, help="Breast cancer and two folds: for a look.")
@click.option(
    "--data",
    "files",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="An .npz with features and labels; several times for several.",
)
@click.option(
    "--family",
    "wanted",
    type=click.Choice(list(FAMILIES)),
    multiple=True,
    help="Only this one.",
)
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write results here.")
@click.option("--page", "text", type=click.Path(path_type=Path), help="Write a page here.")
def main(
    quick: bool,
    files: tuple[Path, ...],
    wanted: tuple[str, ...],
    file: Path | None,
    text: Path | None,
) -> None:
    """Measure each family beside scikit-learn."""
    found: dict[str, dict[str, Any]] = {}
    for name in wanted or FAMILIES:
        family = FAMILIES[name]
        for data, (features, labels) in data_sets(files, quick=quick).items():
            if name == "multinomial-nb" and (features < 0).any():
                continue  # it counts
            if name == "script" and len(np.unique(labels)) > 2:
                continue  # the program of the demonstration tells two classes apart
            measure(family, features[:200], labels[:200], 2)  # compiles
            figures = measure(family, features, labels, 2 if quick or data == "made" else 5)
            found.setdefault(name, {})[data] = asdict(figures)
            click.echo(
                f"{name:15} {data:14} accuracy {figures.accuracy:.4f} "
                f"({figures.accuracy_reference:.4f})  fit {figures.fit_seconds_ratio:6.2f} x  "
                f"deletion {figures.delete_speedup:7.1f} x faster, "
                f"verified {figures.verified_delete_speedup:5.2f} x"
            )
    document = {"processor": platform.machine(), "quick": quick, "families": found}
    if text is not None:
        text.write_text(page(document))
    if file is not None:
        file.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
