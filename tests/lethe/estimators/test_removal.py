"""Unlearning through the estimators: the bytes of a refit, and a proof that can be checked."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import clone

from lethe.certificates.errors import CertificateError, RemovalError
from lethe.estimators import (
    ExactForestClassifier,
    ExactForestRegressor,
    ExactGaussianNB,
    ExactMultinomialNB,
    ExactRidgeClassifier,
    ExactRidgeRegressor,
    RemovalProof,
    verify_removal,
)
from lethe.estimators.errors import EstimatorInputError
from tests.fuzz import fuzz

N = 60
RNG = np.random.default_rng(5)
X = np.abs(RNG.normal(size=(N, 4)))
X[10:14] = X[:4]
LABELS = np.array(["ash", "birch", "cedar"])[np.digitize(X[:, 0] + X[:, 1], [0.8, 2.0])]
TARGETS = X[:, 0] - 2 * X[:, 2] + RNG.normal(size=N) / 10
IDS = np.array([f"p{i:03}" for i in range(N)])

MAKERS: dict[str, Callable[[], Any]] = {
    "forest": lambda: ExactForestClassifier(5, max_depth=6),
    "forest, classes": lambda: ExactForestClassifier(
        5, classes=["ash", "birch", "cedar", "oak"]
    ),
    "forest, regression": lambda: ExactForestRegressor(5, min_samples_leaf=2),
    "ridge": lambda: ExactRidgeRegressor(),
    "ridge, no intercept": lambda: ExactRidgeRegressor(fit_intercept=False, exponent=-20),
    "ridge, classes": lambda: ExactRidgeClassifier(classes=["ash", "birch", "cedar"]),
    "ridge classifier": lambda: ExactRidgeClassifier(),
    "Gaussian": lambda: ExactGaussianNB(),
    "multinomial": lambda: ExactMultinomialNB(classes=["ash", "birch", "cedar"]),
}
WEIGHTED = [name for name in MAKERS if "forest" not in name]


def answers(name: str) -> NDArray[Any]:
    found: NDArray[Any] = (
        TARGETS if name in ("forest, regression", "ridge", "ridge, no intercept") else LABELS
    )
    return found


def fitted(name: str, **fit: Any) -> Any:
    return MAKERS[name]().fit(X, answers(name), ids=IDS, **fit)


@pytest.mark.parametrize("name", MAKERS)
@fuzz(15)
@given(batches=st.lists(st.sets(st.integers(0, N - 1), min_size=1, max_size=20), max_size=4))
def test_unlearning_gives_the_bytes_of_a_refit(name: str, batches: list[set[int]]) -> None:
    model, kept = fitted(name), np.ones(N, bool)
    for batch in batches:
        chosen = [i for i in sorted(batch) if kept[i]]
        if not chosen or kept.sum() == len(chosen):
            continue
        kept[chosen] = False
        proof = model.unlearn(IDS[chosen])
        assert proof.removed == sorted(IDS[chosen])
        verify_removal(model, proof, X[kept], answers(name)[kept])
    again = clone(model).fit(X[kept][::-1], answers(name)[kept][::-1], ids=IDS[kept][::-1])
    assert model.model_bytes() == again.model_bytes()
    assert model.retained_root_ == again.retained_root_


@pytest.mark.parametrize("name", WEIGHTED)
def test_weighted_rows_leave_with_their_weights(name: str) -> None:
    weights = np.random.default_rng(1).integers(0, 64, N) / 16
    model = fitted(name, sample_weight=weights)
    proof = model.unlearn(IDS[::7])
    kept = np.arange(N) % 7 != 0
    verify_removal(model, proof, X[kept], answers(name)[kept], sample_weight=weights[kept])
    with pytest.raises(RemovalError, match="step 2"):
        verify_removal(model, proof, X[kept], answers(name)[kept])


@pytest.mark.parametrize("name", [n for n in MAKERS if answers(n) is LABELS])
@pytest.mark.parametrize("label", ["ash", "cedar"])
def test_the_last_row_of_a_class(name: str, label: str) -> None:
    """Classes that are not declared are those of the rows: a refit would not know this one."""
    model = fitted(name)
    kept = label != LABELS
    first, last = IDS[~kept][:-1], IDS[~kept][-1:]
    model.unlearn(first)
    assert label in model.classes_
    proof = model.unlearn(last)
    assert (label in model.classes_) == (model.classes is not None)
    verify_removal(model, proof, X[kept], LABELS[kept])
    assert label not in model.predict(X)
    one_more = model.unlearn(IDS[kept][:1])
    verify_removal(model, one_more, X[kept][1:], LABELS[kept][1:])


@pytest.mark.parametrize("name", MAKERS)
def test_a_pickled_model_unlearns_as_the_model(name: str) -> None:
    model = fitted(name)
    model.unlearn(IDS[3:9])
    data = pickle.dumps(model)
    assert b"p004" not in data
    for other in (pickle.loads(data), copy.deepcopy(model)):
        assert other.model_bytes() == model.model_bytes()
        assert other.retained_ids_ == model.retained_ids_
        proof = other.unlearn(IDS[20:22])
        kept = np.r_[0:3, 9:20, 22:N]
        verify_removal(other, proof, X[kept], answers(name)[kept])


@pytest.mark.parametrize("name", MAKERS)
def test_what_cannot_be_unlearned_changes_nothing(name: str) -> None:
    model = fitted(name)
    before, root = pickle.dumps(model), model.retained_root_
    for ids, cause in (
        ([], "at least one"),
        (["p001", "p001"], "twice"),
        (["p001", "nobody"], "1 of 2 are of no row"),
        ([1.5], "either texts or whole numbers"),
        (IDS, "no row would be left"),
    ):
        with pytest.raises(EstimatorInputError, match=cause):
            model.unlearn(ids)
    assert model.retained_root_ == root
    assert pickle.dumps(model) == before


def test_ids_are_numbers_where_none_are_given() -> None:
    model = ExactGaussianNB().fit(X, LABELS)
    proof = model.unlearn(7)
    assert proof.removed == ["7"]
    verify_removal(model, proof, np.delete(X, 7, 0), np.delete(LABELS, 7))


def _other_model(proof: RemovalProof) -> RemovalProof:
    return replace(proof, model_after=proof.model_before)


def _other_record(proof: RemovalProof) -> RemovalProof:
    removal = copy.deepcopy(proof.removal)
    removal["records"][0]["record"] = "p050"
    return replace(proof, removal=removal)


def _one_less(proof: RemovalProof) -> RemovalProof:
    removal = copy.deepcopy(proof.removal)
    del removal["records"][0]
    return replace(proof, removal=removal)


def _no_proof(proof: RemovalProof) -> RemovalProof:
    return replace(proof, removal={})


CHANGED = [_other_model, _other_record, _one_less, _no_proof]


@pytest.mark.parametrize("change", CHANGED)
def test_a_changed_proof_is_refuted(change: Callable[[RemovalProof], RemovalProof]) -> None:
    model, kept = fitted("Gaussian"), np.arange(N) > 2
    proof = model.unlearn(IDS[:3])
    verify_removal(model, proof, X[kept], LABELS[kept])
    with pytest.raises(CertificateError):
        verify_removal(model, change(proof), X[kept], LABELS[kept])


def test_other_rows_are_refuted() -> None:
    model = fitted("Gaussian")
    proof = model.unlearn(IDS[:1])
    changed = X[1:].copy()
    changed[5, 2] += 1
    with pytest.raises(RemovalError, match="step 2"):
        verify_removal(model, proof, changed, LABELS[1:])
    with pytest.raises(RemovalError, match="step 2"):
        verify_removal(model, proof, X, LABELS, ids=IDS)


def test_a_model_that_kept_something_is_refuted() -> None:
    proof = fitted("Gaussian").unlearn(IDS[:1])
    once_more = np.ones(N - 1)
    once_more[0] = 2  # it counts p001 twice
    model = MAKERS["Gaussian"]().fit(X[1:], LABELS[1:], ids=IDS[1:], sample_weight=once_more)
    with pytest.raises(RemovalError, match="step 4"):
        verify_removal(model, proof, X[1:], LABELS[1:])
    lie = replace(proof, model_after=model.model_digest())
    with pytest.raises(RemovalError, match="step 3"):
        verify_removal(model, lie, X[1:], LABELS[1:])
