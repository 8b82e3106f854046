"""Integer sums behind ridge and naive Bayes: what is read back, what has always a solution."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.estimators import (
    ExactGaussianNB,
    ExactMultinomialNB,
    ExactRidgeRegressor,
    container,
)
from lethe.estimators.errors import EstimatorInputError
from lethe.estimators.sums.config import SumsConfig
from lethe.estimators.sums.published import read_published
from lethe.estimators.sums.ridge import RidgeSums
from lethe.estimators.sums.sealed import Sums, of_nothing, open_sums, seal
from tests.fuzz import fuzz

DATA = "ab" * 32
RIDGE = SumsConfig(kind="ridge-regressor", columns=3, classes=0)
BAYES = SumsConfig(kind="gaussian-nb", columns=3, classes=2)


def sums_of(config: SumsConfig, rows: int = 9, seed: int = 0) -> Sums:
    rng = np.random.default_rng(seed)
    features = np.abs(rng.normal(size=(rows, config.columns)))
    targets: Any = rng.normal(size=rows)
    if config.classes:
        targets = rng.integers(0, config.classes, rows)
    coded = config.coded(features, targets, rng.integers(0, 99, rows) / 16)
    return of_nothing(config).changed(coded, 1)


@pytest.mark.parametrize("config", [RIDGE, BAYES], ids=["ridge", "bayes"])
def test_a_sealed_state_is_opened_for_its_model_and_rows_alone(config: SumsConfig) -> None:
    sums = sums_of(config)
    file = seal(sums, DATA, 9)
    read = open_sums(file, config, DATA, 9)
    assert seal(read, DATA, 9) == file
    assert read.published().to_bytes() == sums.published().to_bytes()
    others = [
        (replace(config, alpha=2.0), DATA, 9),
        (replace(config, exponent=-15), DATA, 9),
        (replace(config, columns=4), DATA, 9),
        (config, "cd" * 32, 9),
        (config, DATA, 8),
    ]
    for other in others:
        with pytest.raises(EstimatorInputError):
            open_sums(file, *other)
    for broken in (file[:-1], file + b"\0", b"", file.replace(b"<i8", b"<u4", 1)):
        with pytest.raises(EstimatorInputError):
            open_sums(broken, config, DATA, 9)


@fuzz(60)
@given(
    seed=st.integers(0, 2**32 - 1),
    columns=st.integers(1, 5),
    kept=st.sets(st.integers(0, 11)),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
)
def test_what_is_solvable_stays_so_whatever_leaves(
    seed: int, columns: int, kept: set[int], scale: float
) -> None:
    """Features are nearly collinear, and the penalty is the least that the check lets pass."""
    rng = np.random.default_rng(seed)
    # At 1e4 the default steps end at 32,768.
    one = rng.normal(size=(12, 1)).clip(-3, 3) * scale
    features = one + rng.normal(size=(12, columns)) * scale * 1e-9
    targets, weights = rng.normal(size=12), rng.integers(1, 4096, 12) / 16

    def solvable(alpha: float) -> RidgeSums | None:
        config = SumsConfig(kind="ridge-regressor", columns=columns, classes=0, alpha=alpha)
        found = RidgeSums.of_nothing(config).changed(
            config.coded(features, targets, weights), 1
        )
        try:
            found.check_solvable()
        except EstimatorInputError:
            return None
        return found

    least = next(found for n in range(-120, 60) if (found := solvable(2.0**n)) is not None)
    gone = np.array([place not in kept for place in range(12)])
    coded = least.config.coded(features, targets, weights).take(gone)
    left = least.changed(coded, -1)
    assert np.isfinite(left.published().coef).all()


def test_a_penalty_below_the_bound_is_refused() -> None:
    config = replace(RIDGE, alpha=1e-30)
    sums = sums_of(config)
    assert isinstance(sums, RidgeSums)
    with pytest.raises(EstimatorInputError, match="feature"):
        sums.check_solvable()


@pytest.mark.parametrize("config", [RIDGE, replace(BAYES, kind="multinomial-nb"), BAYES])
def test_nothing_has_a_model(config: SumsConfig) -> None:
    found = of_nothing(config).published([["str", "a"], ["str", "b"]][: config.classes])
    assert np.isfinite(found.outputs(np.ones((2, 3)))).all()
    assert read_published(found.to_bytes()).predict(np.ones((2, 3))).tolist() == [0, 0]


def test_a_published_file_is_read_back_and_no_other() -> None:
    rows, labels = [[1.0, 2.0], [3.0, 1.0], [0.0, 4.0]], ["a", "b", "a"]
    for model in (ExactGaussianNB(), ExactMultinomialNB(), ExactRidgeRegressor()):
        regression = isinstance(model, ExactRidgeRegressor)
        file = model.fit(rows, [1.0, 2.0, 0.5] if regression else labels).model_bytes()
        read = read_published(file)
        assert read.to_bytes() == file
        named = read.predict(np.array(rows))
        if not regression:
            named = np.array([text for _, text in read.classes])[named]
        assert named.tolist() == model.predict(rows).tolist()
        header, arrays = container.unpack(file, read.kind)
        other = {**header, "classes": [["str", "a"]]}
        narrow = [one.astype(np.float32) for one in arrays]
        with_nan = [arrays[0] * np.nan, *arrays[1:]]
        for broken in (
            file[:-8],
            file + b"\0",
            b"",
            container.pack(header, arrays[:-1]),
            container.pack(header, [*arrays, arrays[-1]]),
            container.pack(header, [one[:0] for one in arrays]),
            container.pack(header, narrow),
            container.pack(header, with_nan),
            container.pack(header, [*arrays[:-1], np.full_like(arrays[-1], np.inf)]),
            container.pack({**header, "more": 1}, arrays),
            container.pack(other, arrays),
        ):
            with pytest.raises(EstimatorInputError):
                read_published(broken)


@pytest.mark.parametrize(
    ("kind", "array", "number"),
    [
        ("gaussian-nb", 0, -0.5),  # a prior
        ("gaussian-nb", 0, 1.5),
        ("gaussian-nb", 2, -1.0),  # a variance
        ("gaussian-nb", 2, 0.0),
        ("multinomial-nb", 0, -0.5),
        ("multinomial-nb", 1, -0.25),  # a probability
        ("multinomial-nb", 1, 1.5),
    ],
)
def test_a_file_with_impossible_probabilities_is_not_read(
    kind: str, array: int, number: float
) -> None:
    """Their logarithms are NaN, which numpy takes for the largest: that class always wins."""
    published = sums_of(replace(BAYES, kind=kind)).published([["str", "a"], ["str", "b"]])
    arrays = [one.copy() for one in published.arrays]
    arrays[array].flat[1] = number
    header, _ = container.unpack(published.to_bytes(), kind)
    with pytest.raises(EstimatorInputError):
        read_published(container.pack(header, arrays))


@pytest.mark.parametrize("wrong", [["a"], ["str", "a", "b"], [1, 2], [], ["str", None], "ab"])
def test_a_class_is_named_by_its_type_and_text(wrong: Any) -> None:
    published = sums_of(BAYES).published([["str", "a"], ["str", "b"]])
    header, arrays = container.unpack(published.to_bytes(), BAYES.kind)
    with pytest.raises(EstimatorInputError):
        read_published(container.pack({**header, "classes": [["str", "a"], wrong]}, arrays))
