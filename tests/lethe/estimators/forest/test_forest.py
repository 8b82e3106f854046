"""Whatever came and went: the bytes of a forest are those of a refit."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.estimators.errors import EstimatorInputError
from lethe.estimators.forest import forest as forest_module
from lethe.estimators.forest.forest import Forest
from lethe.estimators.forest.published import PublishedForest
from lethe.estimators.forest.tree import CHUNK, FIRST, NONE
from tests.fuzz import fuzz
from tests.lethe.estimators.forest.problem import (
    N,
    config,
    fitted,
    in_order,
    plain_trees,
    rows,
    tree_of,
)

KINDS = (0, 2, 3, 7)  # regression, two classes, and more


def refitted(forest: Forest) -> Forest:
    """Return the forest of the rows that one has, fitted at once in another order."""
    every, features, targets = rows(forest.config.classes)
    chosen = [every.index(one) for one in sorted(forest.store.slots)]
    again = Forest(forest.config)
    again.add([every[i] for i in chosen], features[chosen], targets[chosen])
    return again


def as_refitted(forest: Forest) -> bool:
    again = refitted(forest)
    published = forest.published().to_bytes() == again.published().to_bytes()
    return published and forest.seal() == again.seal()


steps = st.lists(
    st.tuples(st.booleans(), st.sets(st.integers(0, N - 1), max_size=12)), max_size=12
)


@pytest.mark.parametrize("classes", KINDS)
@fuzz(25)
@given(steps=steps, seed=st.integers(0, 3), least=st.integers(1, 4))
def test_any_history_gives_the_bytes_of_a_refit(
    classes: int, steps: list[tuple[bool, set[int]]], seed: int, least: int
) -> None:
    ids, features, targets = rows(classes)
    forest = fitted(classes, slice(0, 110), seed=seed, least=least)
    for comes, members in steps:
        known = {i for i in members if ids[i] in forest.store.slots}
        chosen = sorted(members - known if comes else known)
        if comes:
            forest.add([ids[i] for i in chosen], features[chosen], targets[chosen])
        else:
            forest.remove([ids[i] for i in chosen])
    assert as_refitted(forest)


@pytest.mark.parametrize("classes", KINDS)
def test_row_by_row_to_nothing_and_back(classes: int) -> None:
    ids, features, targets = rows(classes)
    forest, fresh = fitted(classes), Forest(config(classes))
    order = np.random.default_rng(1).permutation(N).tolist()
    for done, i in enumerate(order, start=1):
        forest.remove([ids[i]])
        if done % 20 == 0:
            assert as_refitted(forest)
    assert forest.seal() == fresh.seal()
    assert forest.published().to_bytes() == fresh.published().to_bytes()
    for done, i in enumerate(order, start=1):
        forest.add([ids[i]], features[[i]], targets[[i]])
        if done % 20 == 0:
            assert as_refitted(forest)
    assert forest.seal() == fitted(classes).seal()


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_all_rows_of_a_class(classes: int) -> None:
    ids, features, targets = rows(classes)
    forest = fitted(classes)
    forest.remove([ids[i] for i in range(N) if targets[i] == 1])
    assert as_refitted(forest)
    found = forest.published().probabilities(features)
    assert found.shape == (N, classes)
    assert (found.argmax(axis=1) != 1).all()


def test_rows_that_are_all_alike() -> None:
    forest = Forest(config(2))
    forest.add([str(i) for i in range(40)], np.zeros((40, 5)), np.arange(40) % 2)
    assert len(forest.published().feature) == 3, "nothing to split: a leaf for each tree"
    forest.add(["other"], np.ones((1, 5)), np.array([1]))
    forest.remove([str(i) for i in range(10)])
    again = Forest(config(2))
    again.add(["other"], np.ones((1, 5)), np.array([1]))
    again.add([str(i) for i in range(10, 40)], np.zeros((30, 5)), np.arange(10, 40) % 2)
    assert forest.seal() == again.seal()


@pytest.mark.parametrize("classes", KINDS)
@pytest.mark.parametrize("kept_from", ["some", "all"])
def test_the_trees_are_those_of_plain_fractions(classes: int, kept_from: str) -> None:
    """An oracle that shares no arithmetic: a wrong impurity would be the same wrong in a refit."""
    forest = fitted(classes)
    if kept_from == "all":
        forest.shape = forest.shape._replace(kept_from=2)
        forest.remove(list(forest.store.slots))
        ids, features, targets = rows(classes)
        forest.add(ids, features, targets)
    forest.remove([f"row-{i}" for i in range(0, N, 7)])
    for tree, plain in enumerate(plain_trees(forest)):
        assert in_order(tree_of(forest, tree)) == in_order(plain)


@pytest.mark.parametrize("classes", KINDS)
def test_what_is_kept_changes_nothing_that_is_published(classes: int) -> None:
    ids, features, targets = rows(classes)
    every = Forest(config(classes))
    every.shape = every.shape._replace(kept_from=2)
    every.add(ids, features, targets)
    usual = fitted(classes)
    for i in range(0, 100, 3):
        every.remove([ids[i]])
        usual.remove([ids[i]])
        assert every.published().to_bytes() == usual.published().to_bytes()


@pytest.mark.parametrize("classes", KINDS)
def test_a_sealed_state_goes_on_as_the_forest(classes: int) -> None:
    ids, features, targets = rows(classes)
    forest = fitted(classes, slice(0, 140))
    forest.remove(ids[20:30])
    opened = Forest.open(forest.seal())
    assert opened.seal() == forest.seal()
    for one in (forest, opened):
        one.remove(ids[40:60])
        one.add(ids[20:25], features[20:25], targets[20:25])
        one.remove(ids[100:101])
    assert opened.seal() == forest.seal()
    assert as_refitted(opened)
    assert pickle.loads(pickle.dumps(forest)).seal() == forest.seal()


def test_nothing_of_a_row_is_left_in_memory() -> None:
    forest = fitted(2)
    slot = forest.store.slots["row-5"]
    forest.remove(["row-5"])
    assert not forest.store.values[slot].any()
    assert not forest.store.targets[slot].any()
    assert "row-5" not in forest.store.slots
    for tree in forest.trees:
        assert (tree.link[slot] == NONE).all()
    forest.remove(list(forest.store.slots))
    for tree in forest.trees:
        assert not tree.left.any()
        assert not tree.total.any()


def _kept(forest: Forest) -> int:
    return int(np.flatnonzero(forest.trees[0].node[:, CHUNK] != NONE)[0])


def _leave_a_count(forest: Forest) -> None:
    tree = forest.trees[0]
    tree.left[tree.node[_kept(forest), CHUNK], 0, 0] += 1


def _leave_a_total(forest: Forest) -> None:
    leaf = int(np.flatnonzero(forest.trees[0].node[:, FIRST] != NONE)[0])
    forest.trees[0].total[leaf] += 1


def _keep_a_split(forest: Forest) -> None:
    split = forest.trees[0].node[0]
    split[2] = (split[2] + 1) % 60


def _keep_a_row(forest: Forest) -> None:
    forest.store.slots["row-3"] = 3


PLANTED = {f.__name__: f for f in (_leave_a_count, _leave_a_total, _keep_a_split, _keep_a_row)}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_remainder_is_seen(name: str) -> None:
    forest = fitted(2, least=1)
    forest.remove(["row-3"])
    assert as_refitted(forest)
    PLANTED[name](forest)
    again = fitted(2, [i for i in range(N) if i != 3], least=1)
    assert forest.seal() != again.seal()


def test_a_removal_that_skips_the_counts_is_seen() -> None:
    forest, again = fitted(2), fitted(2, slice(0, N - 1))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(forest_module, "change", lambda tree, *rest: (tree, 0))
        forest.remove([f"row-{N - 1}"])
    assert forest.seal() != again.seal()


BAD = {
    "NaN": (np.full((1, 5), np.nan), [0], ["new"], {"missing": False}, "NaN"),
    "infinity": (np.full((1, 5), np.inf), [0], ["new"], {}, "infinity"),
    "columns": (np.zeros((1, 4)), [0], ["new"], {}, "5 features"),
    "class": (np.zeros((1, 5)), [2], ["new"], {}, "outside 0 to 1"),
    "negative": (np.zeros((1, 5)), [-1], ["new"], {}, "outside 0 to 1"),
    "fraction": (np.zeros((1, 5)), [0.5], ["new"], {}, "whole number"),
    "known": (np.zeros((1, 5)), [0], ["row-1"], {}, "unlearn it"),
    "twice": (np.zeros((2, 5)), [0, 0], ["new", "new"], {}, "each id once"),
    "lengths": (np.zeros((2, 5)), [0, 0], ["new"], {}, "an id"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_rows_are_refused_and_change_nothing(name: str) -> None:
    features, targets, ids, others, cause = BAD[name]
    forest = fitted(2)
    if others:
        bins = forest.config.bins
        forest.config = config(2, bins=type(bins)(bins.edges, **others))
    before = forest.seal()
    with pytest.raises(EstimatorInputError, match=cause):
        forest.add(ids, features, np.array(targets))
    assert forest.seal() == before


def test_unknown_ids_are_refused_unnamed_and_change_nothing() -> None:
    forest = fitted(2)
    before = forest.seal()
    with pytest.raises(EstimatorInputError, match="1 of 2 are of no row") as caught:
        forest.remove(["row-1", "alice@example.org"])
    assert "alice" not in str(caught.value)
    with pytest.raises(EstimatorInputError, match="twice"):
        forest.remove(["row-1", "row-1"])
    assert forest.seal() == before


def test_too_many_rows_for_exact_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forest_module, "MAX_ROWS", N)
    forest = fitted(2)
    with pytest.raises(EstimatorInputError, match=f"at most {N} rows"):
        forest.add(["new"], np.zeros((1, 5)), np.array([0]))


def test_targets_beyond_the_bound() -> None:
    forest = Forest(config(0))
    forest.add(["a", "b"], np.zeros((2, 5)), np.array([2**20, -(2**20)]))
    with pytest.raises(EstimatorInputError, match="outside"):
        forest.add(["c"], np.zeros((1, 5)), np.array([2**20 + 1]))


@pytest.mark.parametrize("classes", KINDS)
def test_what_is_published_is_read_back_and_predicts_the_same(classes: int) -> None:
    _, features, _ = rows(classes)
    published = fitted(classes).published()
    read = PublishedForest.from_bytes(published.to_bytes())
    assert read.to_bytes() == published.to_bytes()
    codes = published.config.bins.codes(features)
    assert np.array_equal(read.sums(codes), published.sums(codes))


@pytest.mark.parametrize("kind", [np.int64, np.float64])
@pytest.mark.parametrize("name", ["sizes", "feature", "bin", "right"])
def test_a_file_whose_arrays_have_other_types_is_not_read(name: str, kind: type) -> None:
    """Compiled code follows their numbers without looking; a sum of int64 wraps around."""
    published = fitted(2).published()
    changes: dict[str, Any] = {name: getattr(published, name).astype(kind)}
    other = replace(published, **changes)
    with pytest.raises(EstimatorInputError, match="not a forest file"):
        PublishedForest.from_bytes(other.to_bytes())
