"""Model files are what docs/download.md says: read here with numpy alone, from the page."""

import json
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes

from lethe.estimators import (
    ExactGaussianNB,
    ExactMultinomialNB,
    ExactRidgeClassifier,
    ExactRidgeRegressor,
)
from lethe.estimators.forest.bins import Bins
from lethe.estimators.forest.forest import Forest
from lethe.estimators.forest.published import ForestConfig


def read(data: bytes) -> tuple[dict[str, Any], list[Any]]:
    assert data[:16] == b"lethe/model/v1\0\n"
    end = 20 + int.from_bytes(data[16:20], "little")
    header, arrays = json.loads(data[20:end]), []
    for kind, shape in header["arrays"]:
        count = int(np.prod(shape, dtype=int))
        arrays.append(np.frombuffer(data, kind, count, end).reshape(shape))
        end += arrays[-1].nbytes
    assert end == len(data)
    return header, arrays


def of_forest(header: dict[str, Any], arrays: list[Any], features: Any) -> Any:
    """Return the sum of leaf values over the trees (n, values)."""
    lengths, edges, sizes, feature, bin_, right, value = arrays
    own = np.split(edges, np.cumsum(lengths)[:-1])
    bins = np.stack(
        [1 + np.searchsorted(one, column) for one, column in zip(own, features.T, strict=True)],
        axis=1,
    )
    leaf = np.cumsum(feature == -1) - 1
    found = np.zeros((len(features), value.shape[1]), int)
    for start in np.cumsum(sizes.astype(int)) - sizes:
        for row, codes in enumerate(bins):
            at = start
            while feature[at] != -1:
                left = codes[feature[at]] <= bin_[at]
                at = at + 1 if left else start + int(right[at])
            found[row] += value[leaf[at]]
    return found


def forest(features: Any, targets: Any, classes: int, *, missing: bool) -> Any:
    options = {"trees": 5, "depth": 6, "least": 1, "group": 3, "thresholds": 5}
    bins = Bins.of_public_rows(features[::2], missing=missing)
    made = Forest(ForestConfig(bins=bins, classes=classes, seed=1, prior=1, **options))
    made.add([str(row) for row in range(len(features))], features, targets)
    return made.published()


@pytest.mark.parametrize("missing", [False, True])
def test_a_forest_of_classes(missing: bool) -> None:
    features, labels = load_breast_cancer(return_X_y=True)
    published = forest(features, labels, 2, missing=missing)
    header, arrays = read(published.to_bytes())
    assert (header["kind"], header["trees"], header["missing"]) == ("forest", 5, missing)
    sums = of_forest(header, arrays, features[:60])
    shares = sums / sums.sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(shares, published.probabilities(features[:60]))


def test_a_forest_of_numbers() -> None:
    features, targets = load_diabetes(return_X_y=True)
    published = forest(features, targets.astype(np.int64), 0, missing=False)
    header, arrays = read(published.to_bytes())
    means = of_forest(header, arrays, features[:60])[:, 0] / header["trees"]
    np.testing.assert_array_equal(means, published.means(features[:60]))


def test_ridge_and_naive_bayes() -> None:
    features, labels = load_breast_cancer(return_X_y=True)
    counts = np.rint(features).clip(0)
    ridge = ExactRidgeClassifier().fit(features, labels)
    header, (coef, intercept) = read(ridge.model_bytes())
    assert header["kind"] == "ridge-classifier"
    found = (features @ coef.T + intercept).argmax(axis=1)
    np.testing.assert_array_equal(found, ridge.predict(features))
    numbers = ExactRidgeRegressor().fit(features, labels)
    _, (coef, intercept) = read(numbers.model_bytes())
    np.testing.assert_allclose((features @ coef.T + intercept)[:, 0], numbers.predict(features))
    gauss = ExactGaussianNB().fit(features, labels)
    header, (prior, mean, var) = read(gauss.model_bytes())
    assert [text for _, text in header["classes"]] == ["0", "1"]
    near = (features[:, None] - mean) ** 2 / var + np.log(2 * np.pi * var)
    found = (np.log(prior) - near.sum(axis=2) / 2).argmax(axis=1)
    np.testing.assert_array_equal(found, gauss.predict(features))
    words = ExactMultinomialNB().fit(counts, labels)
    _, (prior, shares) = read(words.model_bytes())
    found = (np.log(prior) + counts @ np.log(shares).T).argmax(axis=1)
    np.testing.assert_array_equal(found, words.predict(counts))
