"""The models beside scikit-learn's, sums beside Python's integers, and what is refused."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes, load_iris, load_wine
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB, MultinomialNB

from lethe.canonical import encode
from lethe.estimators import (
    ExactForestClassifier,
    ExactForestRegressor,
    ExactGaussianNB,
    ExactMultinomialNB,
    ExactRidgeClassifier,
    ExactRidgeRegressor,
    container,
)
from lethe.estimators.errors import EstimatorInputError
from lethe.estimators.sums.fixed_point import MAX_CODE, Gram, codes, halves
from lethe.estimators.sums.ridge import solve

X, Y = load_diabetes(return_X_y=True, scaled=False)
WINE, KINDS = load_wine(return_X_y=True)
WEIGHTS = np.random.default_rng(2).integers(0, 80, len(X)) / 16


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("intercept", [True, False])
def test_ridge_is_scikit_learns(weights: Any, intercept: bool) -> None:
    own = ExactRidgeRegressor(0.5, fit_intercept=intercept, exponent=-18)
    own.fit(X, Y, sample_weight=weights)
    other = Ridge(0.5, fit_intercept=intercept, solver="cholesky").fit(X, Y, weights)
    assert np.allclose(own.coef_[0], other.coef_, rtol=1e-4, atol=1e-4)
    assert np.allclose(own.predict(X), other.predict(X), rtol=1e-4)


def test_the_ridge_classifier_is_scikit_learns() -> None:
    own = ExactRidgeClassifier(2.0, exponent=-20).fit(WINE, KINDS)
    other = RidgeClassifier(2.0, solver="cholesky").fit(WINE, KINDS)
    assert (own.predict(WINE) == other.predict(WINE)).all()
    # -1 and 1 in place of 0 and 1 double the weights
    assert np.allclose(2 * own.coef_, other.coef_, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("weights", [None, WEIGHTS[: len(WINE)]], ids=["plain", "weighted"])
def test_gaussian_naive_bayes_is_scikit_learns(weights: Any) -> None:
    own = ExactGaussianNB().fit(WINE, KINDS, sample_weight=weights)
    other = GaussianNB().fit(WINE, KINDS, weights)
    assert np.allclose(own.theta_, other.theta_, rtol=1e-5)
    assert np.allclose(own.var_, other.var_, rtol=1e-3)
    assert np.allclose(own.predict_proba(WINE), other.predict_proba(WINE), atol=1e-4)


def test_multinomial_naive_bayes_is_scikit_learns() -> None:
    rows = np.rint(WINE)
    own = ExactMultinomialNB(alpha=0.3).fit(rows, KINDS)
    other = MultinomialNB(alpha=0.3).fit(rows, KINDS)
    assert np.allclose(np.log(own.feature_prob_), other.feature_log_prob_, rtol=1e-12)
    assert np.allclose(own.predict_proba(rows), other.predict_proba(rows))


def test_a_forest_of_targets_explains_as_much_as_scikit_learns() -> None:
    train, test, y_train, y_test = train_test_split(X, Y, random_state=0)
    own = ExactForestRegressor(target_bounds=(0, 400), public_rows=train[:60])
    other = RandomForestRegressor(min_samples_leaf=5, max_features=0.33, random_state=0)
    score = other.fit(train, y_train).score(test, y_test)
    assert own.fit(train, y_train).score(test, y_test) > score - 0.05


def test_a_forest_with_missing_values() -> None:
    rows, labels = load_iris(return_X_y=True)
    rows[np.random.default_rng(0).random(rows.shape) < 0.1] = np.nan
    model = ExactForestClassifier(30, missing="bin", public_rows=rows[::5]).fit(rows, labels)
    assert model.score(rows, labels) > 0.9


@settings(deadline=None)
@given(
    rows=st.lists(
        st.tuples(*[st.integers(-MAX_CODE, MAX_CODE)] * 3, st.integers(0, 4096)), max_size=30
    )
)
def test_sums_are_those_of_pythons_integers(rows: list[tuple[int, ...]]) -> None:
    table = np.array(rows, np.int64).reshape(-1, 4)
    gram = Gram.of_nothing(3)
    gram.add(table[:, :3], table[:, 3], 1)
    expected = [[sum(r[3] * r[i] * r[j] for r in rows) for j in range(3)] for i in range(3)]
    assert gram.whole().tolist() == expected
    gram.add(table[::-1, :3], table[::-1, 3], -1)
    assert not any(part.any() for part in gram.parts)


def test_halves_of_the_largest_codes() -> None:
    high, low = halves(np.array([MAX_CODE, -MAX_CODE, 2**15, 2**15 - 1, -(2**15), 0]))
    assert (high * 2**16 + low).tolist() == [MAX_CODE, -MAX_CODE, 2**15, 2**15 - 1, -(2**15), 0]
    assert np.abs(high).max() <= 2**15
    assert np.abs(low).max() <= 2**15


def test_codes_are_rounded_each_by_itself() -> None:
    numbers = np.array([0.5, 1.5, -0.5, 2.25, 1e9])
    assert codes("X", numbers, 0).tolist() == [0, 2, 0, 2, 10**9]
    with pytest.raises(EstimatorInputError, match="beyond"):
        codes("X", np.array([2.0**31]), 0)


def test_a_system_is_solved() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(40, 12))
    matrix, right = root.T @ root / 40, rng.normal(size=(12, 3))
    assert np.allclose(matrix @ solve(matrix, right), right)
    with pytest.raises(EstimatorInputError, match="alpha"):
        solve(np.zeros((2, 2)), np.ones((2, 1)))


def test_the_solution_takes_the_order_of_operations_that_it_says() -> None:
    """The same loops by Python's own floats: what LLVM made of them neither reorders nor fuses."""
    rng = np.random.default_rng(1)
    root = rng.normal(size=(30, 9))
    matrix, right = root.T @ root / 30, rng.normal(size=(9, 2))
    assert solve(matrix, right).tolist() == _by_hand(matrix.tolist(), right.tolist())


def _by_hand(a: list[list[float]], x: list[list[float]]) -> list[list[float]]:
    n = len(a)
    for k in range(n):
        root = a[k][k] ** 0.5
        a[k][k:] = [one / root for one in a[k][k:]]
        for i in range(k + 1, n):
            for j in range(i, n):
                a[i][j] -= a[k][i] * a[k][j]
    for k in range(n):
        x[k] = [one / a[k][k] for one in x[k]]
        for i in range(k + 1, n):
            x[i] = [old - a[k][i] * new for old, new in zip(x[i], x[k], strict=True)]
    for k in reversed(range(n)):
        for i in range(k + 1, n):
            x[k] = [old - a[k][i] * new for old, new in zip(x[k], x[i], strict=True)]
        x[k] = [one / a[k][k] for one in x[k]]
    return x


def test_the_means_are_rounded_once() -> None:
    rows = np.array([[0.1], [0.2], [0.4], [7.0]])
    model = ExactGaussianNB(exponent=-8).fit(rows, [0, 0, 0, 1])
    whole = [Fraction(round(one * 256), 256) for one in (0.1, 0.2, 0.4)]
    assert model.theta_[0, 0] == float(sum(whole) / 3)


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "weights between steps": (ExactRidgeRegressor(), {"sample_weight": [0.1] * 4}, "multiples"),
    "negative weights": (ExactRidgeRegressor(), {"sample_weight": [-1.0] * 4}, "not negative"),
    "large weights": (ExactGaussianNB(), {"sample_weight": [257.0] * 4}, "at most 256"),
    "no penalty": (ExactRidgeRegressor(0.0), {}, "alpha"),
    "infinite penalty": (ExactRidgeRegressor(float("inf")), {}, "alpha"),
    "exponent": (ExactRidgeRegressor(exponent=500), {}, "exponent"),
    "too fine": (ExactRidgeRegressor(exponent=-40), {}, "beyond"),
    "smoothing": (ExactGaussianNB(var_smoothing=-1), {}, "var_smoothing"),
    "no count": (ExactMultinomialNB(alpha=0), {}, "alpha"),
    "undeclared": (ExactRidgeClassifier(classes=[0, 2]), {}, "declared classes"),
    "ids twice": (ExactGaussianNB(), {"ids": ["a", "a", "b", "c"]}, "twice"),
    "too few ids": (ExactGaussianNB(), {"ids": ["a"]}, "each of the 4 rows"),
    "ids of both kinds": (
        ExactGaussianNB(),
        {"ids": np.array([1, "a", 2, 3], object)},
        "either texts",
    ),
    "ids of no text": (ExactGaussianNB(), {"ids": ["a", "b", "\ud800", "c"]}, "UTF-8"),
    "edges and rows": (
        ExactForestClassifier(edges=[[0.0]], public_rows=[[0.0]]),
        {},
        "one of them",
    ),
    "edges of others": (ExactForestClassifier(edges=[[0.0]] * 3), {}, "of 3 features"),
    "missing": (ExactForestClassifier(missing="drop"), {}, "'refuse' or 'bin'"),
    "features": (ExactForestClassifier(max_features="log2"), {}, "max_features"),
    "seed": (ExactForestClassifier(random_state=None), {}, "random_state"),  # type: ignore[arg-type]
    "target": (ExactForestRegressor(target_bounds=(5.0, 6.0)), {}, "target_bounds"),
    "bounds": (ExactForestRegressor(target_bounds=(6.0, 5.0)), {}, "target_bounds"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_names_its_cause(name: str) -> None:
    model, fit, cause = REFUSED[name]
    with pytest.raises(EstimatorInputError, match=cause):
        model.fit([[1.0, 2.0], [2.0, 1.0], [1.5, 0.0], [0.0, 4.0]], [0, 1, 0, 1], **fit)


@pytest.mark.parametrize("maker", [ExactGaussianNB, ExactRidgeRegressor])
def test_the_rows_with_a_weight_cannot_all_leave(maker: Any) -> None:
    """A refit would be refused by scikit-learn's own check of weights."""
    model = maker().fit([[1.0], [2.0], [4.0]], [0, 1, 1], sample_weight=[1.0, 0.0, 0.0])
    before = model.model_bytes()
    with pytest.raises(EstimatorInputError, match="weigh 0"):
        model.unlearn([0])
    assert model.model_bytes() == before
    assert model.retained_ids_ == ["0", "1", "2"]


def test_a_shape_of_many_numbers_is_refused_unmultiplied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head = encode({"kind": "x", "arrays": [["|u1", [2**53 - 1] * 9]]})
    data = container.MAGIC + len(head).to_bytes(4, "little") + head
    monkeypatch.setattr(container, "prod", lambda _: pytest.fail("multiplied"))
    with pytest.raises(EstimatorInputError):
        container.unpack(data, "x")


def test_a_container_is_read_back_and_no_other_kind() -> None:
    data = container.pack({"kind": "x", "n": 1}, [np.arange(3, dtype=">i8"), np.zeros((0, 2))])
    header, arrays = container.unpack(data, "x")
    assert header == {"kind": "x", "n": 1}
    assert [one.tolist() for one in arrays] == [[0, 1, 2], []]
    for other in (data[:-1], data + b"\0", b"", data.replace(b"lethe", b"lehte")):
        with pytest.raises(EstimatorInputError, match="not a x file"):
            container.unpack(other, "x")
    with pytest.raises(EstimatorInputError, match="not a y file"):
        container.unpack(data, "y")
