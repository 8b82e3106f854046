"""Draws beside numpy's, comparisons beside Python's integers, bins, and damaged files."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.estimators.errors import EstimatorInputError
from lethe.estimators.forest.bins import DEFAULT_EDGES, MAX_EDGES, Bins
from lethe.estimators.forest.draws import below, block, multiply, tree_key
from lethe.estimators.forest.impurity import (
    MAX_ROWS,
    MAX_TARGET,
    best_candidate,
    exceeds,
    is_pure,
    square_exceeds,
)
from lethe.estimators.forest.published import ForestConfig, PublishedForest, leaf_values
from tests.fuzz import fuzz
from tests.lethe.estimators.forest.problem import config, fitted

words = st.one_of(
    st.integers(0, 2**64 - 1), st.integers(2**64 - 4, 2**64 - 1), st.integers(0, 3)
)
positive = st.one_of(st.integers(1, 2**42 - 1), st.integers(1, 4))
U = np.uint64


@settings(deadline=None)
@given(path=st.integers(1, 2**62), position=st.integers(0, 2**40), tree=st.integers(0, 99))
def test_blocks_are_numpys_philox(path: int, position: int, tree: int) -> None:
    key, out = tree_key(5, tree), np.empty(4, np.uint64)
    block(key, path, position, out)
    counter = path + (position << 64) - 1
    philox = np.random.Philox(counter=counter, key=int(key[0]) + (int(key[1]) << 64))
    assert out.tolist() == philox.random_raw(4).tolist()


@settings(deadline=None)
@given(a=words, b=words, bound=st.integers(1, 2**31))
def test_products_of_words(a: int, b: int, bound: int) -> None:
    high, low = multiply(U(a), U(b))
    assert (int(high) << 64) + int(low) == a * b
    assert below(U(a), bound) == a * bound >> 64


@settings(deadline=None)
@given(a=words, b=positive, c=words, d=positive)
def test_fractions_are_compared_exactly(a: int, b: int, c: int, d: int) -> None:
    assert exceeds(U(a), U(b), U(c), U(d)) == (Fraction(a, b) > Fraction(c, d))
    squares = Fraction(a * a, b) > Fraction(c * c, d)
    assert square_exceeds(U(a), U(b), U(c), U(d)) == squares


@pytest.mark.parametrize("rows", [2, 10, MAX_ROWS])
@fuzz(100)
@given(data=st.data())
def test_the_best_candidate_at_every_size(rows: int, data: st.DataObject) -> None:
    """At the largest size too, where a product that overflowed would show."""
    sums = []
    extreme = st.sampled_from([-MAX_TARGET, MAX_TARGET, 0, 1])
    for _ in range(4):
        n_left = data.draw(st.one_of(st.integers(0, rows), st.just(rows // 2)))
        sums.append((n_left, n_left * data.draw(extreme), (rows - n_left) * data.draw(extreme)))
    total = sums[0][1] + sums[0][2]
    # every candidate divides the same rows
    left = [
        (n, min(max(own, total - (rows - n) * MAX_TARGET), total + (rows - n) * MAX_TARGET))
        for n, own, _ in sums
    ]
    scores = [
        Fraction(own**2, n) + Fraction((total - own) ** 2, rows - n) if 0 < n < rows else None
        for n, own in left
    ]
    allowed = [score for score in scores if score is not None]
    expected = scores.index(max(allowed)) if allowed else -1
    found = best_candidate(
        rows, np.array([total, 0]), np.array(left, np.int64), len(left), 1, 0
    )
    assert found == expected


@pytest.mark.parametrize("rows", [3, 11, MAX_ROWS])
@fuzz(100)
@given(data=st.data())
def test_the_best_of_several_classes_at_every_size(rows: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, rows))
    second = data.draw(st.integers(0, rows - first))
    total = [first, second, rows - first - second]
    left = [[data.draw(st.integers(0, count)) for count in total] for _ in range(4)]
    scores = []
    for own in left:
        n = sum(own)
        rest = [a - b for a, b in zip(total, own, strict=True)]
        inner = Fraction(sum(a * a for a in own), max(n, 1))
        outer = Fraction(sum(a * a for a in rest), max(rows - n, 1))
        scores.append(inner + outer if 0 < n < rows else None)
    allowed = [score for score in scores if score is not None]
    expected = scores.index(max(allowed)) if allowed else -1
    found = best_candidate(rows, np.array(total), np.array(left), len(left), 1, 3)
    assert found == expected


def test_pure_nodes() -> None:
    n, t = MAX_ROWS, MAX_TARGET
    assert is_pure(n, np.array([n * t, n * t * t]), 0)
    assert not is_pure(n, np.array([n * t - 1, n * t * t - 2 * t + 1]), 0)
    assert is_pure(0, np.array([0, 0]), 0)
    assert is_pure(4, np.array([0, 4, 0]), 3)
    assert not is_pure(4, np.array([1, 3, 0]), 3)


def test_codes_say_how_many_edges_are_below() -> None:
    bins = Bins.declared([[0.0, 1.0], []], missing=True)
    found = bins.codes(np.array([[-1, 5], [0, 5], [0.5, 5], [1, 5], [2, 5], [np.nan, 5.0]]))
    assert found.tolist() == [[1, 1], [1, 1], [2, 1], [2, 1], [3, 1], [0, 1]]
    assert bins.widest.tolist() == [[0, 3], [0, 1]]
    assert Bins.declared([[0.0]]).widest.tolist() == [[1, 2]]


def test_edges_of_public_rows() -> None:
    rows = np.column_stack([np.arange(1000.0), np.arange(1000) % 3, np.full(1000, 7.0)])
    edges = Bins.of_public_rows(rows).edges
    assert len(edges[0]) == MAX_EDGES
    assert edges[1].tolist() == [0.5, 1.5]
    assert edges[2].tolist() == []
    shuffled = np.random.default_rng(0).permutation(rows)
    assert all(map(np.array_equal, edges, Bins.of_public_rows(shuffled).edges))


def test_edges_of_rows_that_may_leave_say_nothing_of_their_order() -> None:
    """Zeros of both signs are equal: which of them is an edge must not be told by the order."""
    zeros = np.array([[0.0], [-0.0]] * 40 + [[float(number)] for number in range(1, 80)])
    found = Bins.of_rows(zeros, [[1.0]]).edges[0]
    assert found.tolist()[0] == 0.0
    for rows in (zeros[::-1], np.random.default_rng(0).permutation(zeros)):
        assert Bins.of_rows(rows, [[1.0]]).edges[0].tobytes() == found.tobytes()


def test_a_feature_of_which_no_row_has_a_value_keeps_its_edges() -> None:
    rows = np.array([[1.0, np.nan], [3.0, np.nan]])
    edges = Bins.of_rows(rows, [[9.0], [0.25]], missing=True).edges
    assert [own.tolist() for own in edges] == [[2.0], [0.25]]
    none = Bins.of_rows(np.zeros((0, 2)), [[9.0], [0.25]])
    assert [own.tolist() for own in none.edges] == [[9.0], [0.25]]
    with pytest.raises(EstimatorInputError, match="2 features"):
        Bins.of_rows(np.zeros((3, 1)), [[9.0], [0.25]])


def test_edges_of_numbers_whose_sum_is_too_large() -> None:
    edges = Bins.of_public_rows(np.array([[1e308], [1.7e308]])).edges
    assert np.isfinite(edges[0]).all()


@pytest.mark.parametrize(
    ("edges", "cause"),
    [
        ([], "at least one"),
        ([[1.0, 1.0]], "ascend"),
        ([[2.0, 1.0]], "ascend"),
        ([[np.nan]], "finite"),
        ([[np.inf]], "finite"),
        ([list(range(63))], "at most 62"),
    ],
)
def test_bad_edges(edges: list[list[float]], cause: str) -> None:
    with pytest.raises(EstimatorInputError, match=cause):
        Bins.declared(edges)


@pytest.mark.parametrize(
    "rows", [np.zeros((0, 2)), np.zeros(3), np.array([[np.nan]]), np.array([[np.inf]])]
)
def test_bad_public_rows(rows: Any) -> None:
    with pytest.raises(EstimatorInputError, match="public rows"):
        Bins.of_public_rows(rows)


def test_edges_without_a_declaration_ascend() -> None:
    Bins.declared([DEFAULT_EDGES.tolist()])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("trees", 0),
        ("depth", 63),
        ("least", 0),
        ("group", 6),
        ("thresholds", 64),
        ("seed", -1),
        ("prior", 0),
    ],
)
def test_numbers_out_of_range(name: str, value: int) -> None:
    with pytest.raises(EstimatorInputError, match=name):
        config(2, **{name: value})


def test_too_many_classes() -> None:
    with pytest.raises(EstimatorInputError, match="classes"):
        config(1001)


def values(classes: int, rows: list[int], total: list[list[int]]) -> list[list[int]]:
    found: list[list[int]] = leaf_values(
        config(classes), np.array(rows, np.int32), np.array(total)
    ).tolist()
    return found


def test_the_value_of_a_leaf() -> None:
    # (n_c C + prior) / (C (n + prior)) in steps of 1 / 255
    assert values(2, [0, 1, 3], [[0, 0], [1, 1], [1, 1]]) == [[128, 128], [64, 191], [159, 96]]
    assert values(3, [2], [[2, 0, 0]]) == [[198, 28, 28]]
    assert values(1, [4], [[0, 0]]) == [[255]]
    assert values(0, [0, 2, 2, 2], [[0, 0], [3, 0], [-3, 0], [-5, 0]]) == [[0], [2], [-1], [-2]]
    assert values(3, [10**6], [[10**6, 0, 0]]) == [[255, 1, 1]], "no class is impossible"


def test_a_published_file_has_no_counts() -> None:
    forest = fitted(2)
    published = forest.published()
    names = set(vars(published)) - {"config"}
    assert names == {"sizes", "feature", "bin", "right", "value"}
    header = published.to_bytes()[20:400]
    assert b"row-" not in published.to_bytes()
    assert str(len(forest)).encode() not in header


@pytest.fixture(scope="module")
def whole() -> bytes:
    """The file of a forest."""
    return fitted(3).published().to_bytes()


@fuzz(300)
@given(data=st.data())
def test_a_damaged_file_is_refused_or_predicts(whole: bytes, data: st.DataObject) -> None:
    """Predictions follow indices of the file without a check: reading must have checked them."""
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[at] ^= data.draw(st.integers(1, 255))
    try:
        read = PublishedForest.from_bytes(bytes(damaged))
    except EstimatorInputError:
        return
    assert read.to_bytes() == bytes(damaged)
    read.probabilities(np.zeros((2, len(read.config.bins.edges))))


@pytest.mark.parametrize("length", [0, 5, 19, 300, -1])
def test_a_file_that_ends_early_is_refused(length: int) -> None:
    whole = fitted(2).published().to_bytes()
    with pytest.raises(EstimatorInputError, match="not a forest file"):
        PublishedForest.from_bytes(whole[:length])


def test_a_configuration_is_read_back() -> None:
    own = config(3)
    read = ForestConfig.read(own.header(), own.edge_arrays())
    assert read.header() == own.header()
    assert all(map(np.array_equal, read.bins.edges, own.bins.edges))
