"""The forest that unlearns exactly, beside scikit-learn's: accuracy, fit, and one deletion.

    python -m benchmarks.forest [--quick] [--data FILE]... [--json FILE]

Times are of the processor, so that what else runs on the machine counts for little. Accuracy is
of repeated cross-validation with the same folds for both; scikit-learn's forest has its own
defaults. Bins come from a fifth of each training fold, declared public. FILE is an .npz with
`features` (n, d) and `labels` (n,), of which --rows are drawn.
"""

import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any, TypeVar

import click
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import RepeatedStratifiedKFold

from lethe.estimators import ExactForestClassifier, verify_removal
from lethe.estimators.forest.bins import Bins
from lethe.estimators.forest.forest import Forest
from lethe.estimators.forest.published import ForestConfig

Numbers = NDArray[Any]
T = TypeVar("T")
TREES, FOLDS = 100, 5
AIMS = {"accuracy_difference": -0.01, "fit_ratio": 5.0, "delete_speedup": 100.0}


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return what a call gives, and the seconds of the processor that it takes."""
    started = time.process_time()
    result = work()
    return result, time.process_time() - started


def accuracy(features: Numbers, labels: Numbers, repeats: int, trees: int) -> dict[str, float]:
    """Return the mean accuracy of both forests, and the standard error of the difference."""
    folds = RepeatedStratifiedKFold(n_splits=FOLDS, n_repeats=repeats, random_state=0)
    own: list[float] = []
    other: list[float] = []
    for train, test in folds.split(features, labels):
        public = features[train[::5]]
        model = ExactForestClassifier(trees, public_rows=public)
        reference = RandomForestClassifier(trees, random_state=0, n_jobs=1)
        for one, scores in ((model, own), (reference, other)):
            one.fit(features[train], labels[train])
            scores.append(one.score(features[test], labels[test]))
    differences = [a - b for a, b in zip(own, other, strict=True)]
    return {
        "rows": len(features),
        "accuracy": mean(own),
        "accuracy_reference": mean(other),
        "difference": mean(differences),
        "standard_error": stdev(differences) / len(differences) ** 0.5,
    }


def cost(rows: int, trees: int, depth: int, seed: int, deletions: int) -> dict[str, float]:
    """Return times of fitting and of deleting single rows, in seconds of the processor.

    The mean varies with the seed: where two candidates of a large node nearly tie, each of many
    rows decides between them, and most of a tree is built again.
    """
    features, labels = make_classification(
        rows, 30, n_informative=10, n_redundant=2, random_state=0
    )
    ids = [str(i) for i in range(rows)]
    config = ForestConfig(
        bins=Bins.of_public_rows(features[:2000]),
        classes=2,
        trees=trees,
        depth=depth,
        least=1,
        group=5,
        thresholds=5,
        seed=seed,
        prior=1,
    )

    def fit(members: Numbers) -> Forest:
        forest = Forest(config)
        forest.add([ids[i] for i in members], features[members], labels[members])
        return forest

    every = np.arange(rows)
    fit(every[:500]).remove(ids[:3])  # compiles
    reference = RandomForestClassifier(trees, max_depth=depth, random_state=0, n_jobs=1)
    _, reference_seconds = timed(lambda: reference.fit(features, labels))
    forest, fit_seconds = timed(lambda: fit(every))
    chosen = np.random.default_rng(0).choice(rows, deletions, replace=False)
    single, published, rebuilt = [], [], []
    for i in chosen:
        _, seconds = timed(lambda i=i: forest.remove([ids[i]]))  # type: ignore[misc]
        _, more = timed(lambda: forest.published().to_bytes())
        single.append(seconds)
        published.append(seconds + more)
        rebuilt.append(forest.rebuilt)
    again, refit_seconds = timed(lambda: fit(np.setdiff1d(every, chosen)))
    if again.seal() != forest.seal():
        raise click.ClickException("the forest after the deletions is not that of a refit")
    return {
        "rows": rows,
        "trees": trees,
        "depth": depth,
        "seed": seed,
        "fit_seconds": fit_seconds,
        "reference_seconds": reference_seconds,
        "fit_ratio": fit_seconds / reference_seconds,
        "refit_seconds": refit_seconds,
        "deletions": deletions,
        "delete_seconds_mean": mean(single),
        "delete_seconds_median": float(np.median(single)),
        "delete_seconds_most": max(single),
        "delete_seconds_published": mean(published),
        "rebuilt_rows_mean": mean(rebuilt),
        "delete_speedup": refit_seconds / mean(single),
        "published_speedup": refit_seconds / mean(published),
    }


def estimator_cost(rows: int, trees: int, depth: int, deletions: int) -> dict[str, float]:
    """Return the times of `fit` and `unlearn`, with both digests and the proof."""
    features, labels = make_classification(rows, 30, n_informative=10, random_state=0)
    model = ExactForestClassifier(trees, max_depth=depth, public_rows=features[:2000])
    _, fit_seconds = timed(lambda: model.fit(features, labels))
    _, first = timed(lambda: model.unlearn([0]))
    seconds = []
    for i in range(1, deletions):
        proof, one = timed(lambda i=i: model.unlearn([i]))  # type: ignore[misc]
        seconds.append(one)
    rest = slice(deletions, None)
    _, check = timed(lambda: verify_removal(model, proof, features[rest], labels[rest]))
    return {
        "fit_seconds": fit_seconds,
        "first_unlearn_seconds": first,
        "unlearn_seconds_mean": mean(seconds),
        "verify_seconds": check,
        "unlearn_speedup": fit_seconds / mean(seconds),
    }


def sample(path: Path, rows: int) -> tuple[Numbers, Numbers]:
    """Return a random sample of a file, without classes that are too small to divide."""
    with np.load(path, allow_pickle=False) as file:
        features, labels = file["features"], file["labels"]
    return chosen(features, labels, rows)


def chosen(features: Numbers, labels: Numbers, rows: int) -> tuple[Numbers, Numbers]:
    """Return a random sample of rows, without classes that are too small to divide."""
    drawn = np.random.default_rng(0).permutation(len(labels))[:rows]
    features, labels = features[drawn].astype(np.float64), labels[drawn]
    kept = np.isin(labels, np.flatnonzero(np.bincount(labels) >= 2 * FOLDS))
    return features[kept], labels[kept]


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes: for a look, not for the aims.")
@click.option("--data", multiple=True, type=click.Path(exists=True, path_type=Path))
@click.option("--rows", default=4000, show_default=True, help="Rows drawn of each --data.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write results here.")
def main(quick: bool, data: tuple[Path, ...], rows: int, file: Path | None) -> None:
    """Measure the exact forest beside scikit-learn's RandomForestClassifier."""
    repeats, forest = (1, 20) if quick else (3, TREES)
    sets = {
        "breast_cancer": load_breast_cancer(return_X_y=True),
        "digits": load_digits(return_X_y=True),
        **{path.stem: sample(path, 500 if quick else rows) for path in data},
    }
    report: dict[str, Any] = {"machine": platform.machine(), "quick": quick, "accuracy": {}}
    for name, (features, labels) in sets.items():
        found = accuracy(features, labels, repeats, forest)
        report["accuracy"][name] = found
        met = quick or found["difference"] >= AIMS["accuracy_difference"]
        click.echo(
            f"{name:16} accuracy {found['accuracy']:.4f}, "
            f"scikit-learn {found['accuracy_reference']:.4f}, "
            f"difference {found['difference']:+.4f} ± {found['standard_error']:.4f}"
            f"{'' if met else '   NOT MET'}"
        )
    full = [*((20, 10, seed) for seed in range(6)), (100, 16, 0)]
    for trees, depth, seed in [(4, 10, 0)] if quick else full:
        found = cost(2000 if quick else 100_000, trees, depth, seed, 20 if quick else 100)
        report.setdefault("cost", []).append(found)
        met = quick or (
            found["fit_ratio"] <= AIMS["fit_ratio"]
            and found["delete_speedup"] >= AIMS["delete_speedup"]
        )
        click.echo(
            f"{found['rows']} x 30, {trees} trees of depth {depth}, seed {seed}: "
            f"fit {found['fit_seconds']:.2f} s = {found['fit_ratio']:.2f} of scikit-learn's; "
            f"a deletion {1e3 * found['delete_seconds_mean']:.2f} ms "
            f"(median {1e3 * found['delete_seconds_median']:.2f}, "
            f"most {1e3 * found['delete_seconds_most']:.1f}), "
            f"{found['delete_speedup']:.0f} times faster than the refit; "
            f"{found['published_speedup']:.0f} times with the file to publish"
            f"{'' if met else '   NOT MET'}"
        )
    found = estimator_cost(2000 if quick else 100_000, 4 if quick else 20, 10, 20)
    report["estimator"] = found
    click.echo(
        f"estimator: fit {found['fit_seconds']:.2f} s, "
        f"first unlearn {found['first_unlearn_seconds']:.2f} s, later "
        f"{1e3 * found['unlearn_seconds_mean']:.1f} ms with digests and proof, "
        f"{found['unlearn_speedup']:.0f} times faster than fit; "
        f"verify_removal {found['verify_seconds']:.2f} s"
    )
    if file is not None:
        file.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
