"""A logistic head, its proven distance to the retained optimum, and its noise."""

from dataclasses import fields, replace
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest

from tests.workers.judge.certified import logistic_claims as made
from tests.workers.judge.certified.logistic_claims import logistic_claim, noisy_claim
from tests.workers.judge.claims import ERASED
from tests.workers.methods.network.hf_kcu.small import (
    NETWORK,
    PENALTY,
    POISONED,
    case_of,
    without,
)
from workers.blas_threads import threads_for
from workers.judge.base import Report
from workers.judge.certified.logistic import VERIFIER, LogisticClaim
from workers.judge.certified.logistic_gradient import distance_above
from workers.judge.certified.logistic_noise import NoiseClaim, check_budget
from workers.methods.certified.budget import Budget
from workers.methods.certified.method import CertifiedNewton

Array = np.ndarray


def failed(report: Report) -> list[int]:
    return [check.number for check in report.checks if not check.passed]


def judge(claim: LogisticClaim) -> list[int]:
    report = VERIFIER.verify(claim)
    wrong = failed(report)
    assert report.result == ("FAIL" if wrong else "PASS")
    return wrong


def test_true_claims_pass() -> None:
    common = ["model-file", "data", "retained-set", "purge", "gradient-bound"]
    more = ["registration", "rows-before"]
    for claim, noise in ((logistic_claim(), []), (noisy_claim(), ["noise", "budget"])):
        report = VERIFIER.verify(claim)
        assert failed(report) == []
        found = [(check.number, check.name) for check in report.checks]
        assert found == list(enumerate([*common, *noise, *more], 1))
    low, high = VERIFIER.verify(logistic_claim()).checks[4].interval or ("", "")
    assert low == "0"
    assert 0 < float(high) < 1e-5


def test_the_true_distance_is_below_the_bound_in_hundreds_of_cases() -> None:
    tight = []
    for seed in range(75):
        rng = np.random.default_rng(1000 + seed)
        rows, inputs, classes = (int(rng.integers(a, b)) for a, b in ((3, 30), (1, 4), (2, 4)))
        features, labels = made.problem(seed, rows, inputs, classes, 10 ** rng.uniform(-1, 1))
        penalty = float(10 ** rng.uniform(-3, 0))
        best = made.optimum(features, labels, penalty, classes)
        with threads_for(1):
            matrix = made.hessian(best.ravel(), features, labels, penalty, classes)
            largest = np.linalg.norm(matrix, 2)
        for size in (0.0, 1e-6, 1e-3, 1.0):
            theta = (best + size * rng.normal(size=best.shape)).astype(np.float32)
            bound = distance_above(features, labels, theta[:, 0], theta[:, 1:], penalty)
            distance = float(np.linalg.norm(theta - best))
            assert distance <= bound + 1e-13
            if size <= 1e-3:  # if ∇L is the Hessian's part alone, the bound is κ at most
                assert bound <= 1.2 * distance * largest / penalty + 1e-9
            tight.append(distance / bound)
    assert max(tight) > 0.9


@pytest.mark.parametrize("size", [1.0, 1e3, 1e6])
def test_rounding_is_within_what_was_added_for_it(size: float) -> None:
    penalty = 1e-9  # so that λθ does not hide what the rows do
    for seed in range(8):
        rng = np.random.default_rng(seed)
        features, labels = made.problem(seed, 9, 3, 3)
        # A term common to all classes cancels in the softmax, except for its rounding.
        theta = (size * rng.normal(size=4) + rng.normal(size=(3, 4))).astype(np.float32)
        bound = distance_above(features, labels, theta[:, 0], theta[:, 1:], penalty)
        with localcontext(prec=60):
            exact = in_decimals(features, labels, theta, penalty)
            assert exact <= Decimal(bound)
            assert Decimal(bound) <= exact * (1 + Decimal("1e-12") * Decimal(100 + size))


def in_decimals(features: Array, labels: Array, theta: Array, penalty: float) -> Decimal:
    """Return ‖∇L‖ / λ to the digits of the context, entry by entry."""
    weights = [[Decimal(float(value)) for value in row] for row in theta]
    total = [[Decimal(0)] * len(weights[0]) for _ in weights]
    for x, label in zip(features, labels, strict=True):
        row = [Decimal(1), *(Decimal(float(value)) for value in x)]
        z = [sum(t * v for t, v in zip(k, row, strict=True)) for k in weights]
        powers = [(Decimal(v) - max(z)).exp() for v in z]
        for k, power in enumerate(powers):
            slope = power / sum(powers) - (k == label)
            total[k] = [old + slope * v for old, v in zip(total[k], row, strict=True)]
    square = Decimal(0)
    for sums, mine in zip(total, weights, strict=True):
        for part, weight in zip(sums, mine, strict=True):
            square += (part / len(labels) + Decimal(penalty) * weight) ** 2
    return square.sqrt() / Decimal(penalty)


def test_the_old_model_and_a_record_left_in_are_refuted() -> None:
    assert judge(logistic_claim(made.WITH_ERASED)) == [5]
    assert judge(logistic_claim(made.WITH_ERASED, bound=10.0)) == [5]  # not the tolerance
    # One erased record stayed in the objective that was minimised.
    left = [*made.STAYS, ERASED[0]]
    theta = made.optimum(made.ROWS[left], made.LABELS[left], PENALTY, 3).astype(np.float32)
    assert judge(logistic_claim(theta)) == [5]
    # Nor can it be put among the rows: the retained set has no place for it.
    with_it = logistic_claim(theta, features=made.ROWS[left], labels=made.LABELS[left])
    report = VERIFIER.verify(with_it)
    assert failed(report) == [5]
    assert "more training rows than retained" in report.checks[4].value
    noisy = made.WITH_ERASED
    centre = {"centre_bias": noisy[:, 0].copy(), "centre_weight": noisy[:, 1:].copy()}
    assert 7 in judge(noisy_claim(centre))


def nudged(array: Array, by: float = 1e-3) -> Array:
    other = array.copy()
    other.flat[1] += by
    return other


CLAIMS: list[tuple[dict[str, Any], list[int]]] = [
    ({"published_digest": "13" * 32}, [1]),
    ({"file_digest": None}, [1]),
    ({"claimed_data": "cd" * 32}, [2]),
    ({"data": "cd" * 32}, [2, 6]),
    ({"data": 3}, [2, 6]),
    ({"retained_set": None}, [3, 5, 6, 7]),
    ({"purge": None}, [3, 4]),
    ({"features": made.RETAINED[:, :3]}, [5, 6, 7]),
    ({"features": made.RETAINED.astype(np.float64)}, [5, 6, 7]),
    ({"features": nudged(made.RETAINED, np.nan)}, [5, 6, 7]),
    ({"features": nudged(made.RETAINED, 1e30)}, [5, 7]),
    ({"features": None}, [5, 6, 7]),
    ({"labels": made.KEPT[:-1]}, [5, 6, 7]),
    ({"labels": made.KEPT + 1}, [5, 6, 7]),
    ({"labels": (made.KEPT + 1) % 3}, [5, 7]),
    ({"labels": made.KEPT.astype(np.int32)}, [5, 6, 7]),
    ({"bias": nudged(noisy_claim().bias)}, [6]),
    ({"weight": nudged(noisy_claim().weight)}, [6]),
    ({"weight": nudged(noisy_claim().weight, np.inf)}, [5, 6, 7]),
    ({"weight": noisy_claim().weight.T}, [5, 6, 7]),
    ({"bias": 1.0}, [5, 6, 7]),
    ({"penalty": 0.04}, [5, 7]),
    ({"penalty": 1e-300}, [5, 7]),
    ({"penalty": 0.0}, [5, 6, 7]),
    ({"penalty": "0.05"}, [5, 6, 7]),
    ({"bound": 1e-3}, [5]),
    ({"bound": float("nan")}, [5, 6, 7]),
    ({"tolerance": 1e-3}, [5]),
    ({"tolerance": 1.0}, [5, 6, 7]),
    ({"noise": "none"}, [5, 6, 7]),
    ({"registration": ("", "34" * 32)}, [8]),
    ({"registration": ("34" * 32, "35" * 32)}, [8]),
    ({"rows_before": ("56" * 32, "57" * 32)}, [9]),
    ({"rows_before": None}, [9]),
]
NOISES: list[tuple[dict[str, Any], list[int]]] = [
    ({"sigma": 0.011}, [6]),
    ({"sigma": 1e300}, [6]),
    ({"sigma": 1e-7}, [6, 7]),
    ({"sigma": 0.0}, [6, 7]),
    ({"sigma": "1"}, [6, 7]),
    ({"epsilon": 1e-9, "delta": 1e-7}, [7]),
    ({"epsilon": 0.0}, [6, 7]),
    ({"epsilon": 21.0}, [6, 7]),
    ({"delta": 0.0}, [6, 7]),
    ({"centre_bias": nudged(noisy_claim().bias)}, [5, 6, 7]),
    ({"centre_weight": nudged(noisy_claim().weight, np.nan)}, [5, 6, 7]),
    ({"centre_weight": None}, [5, 6, 7]),
    ({"key": bytes(32)}, [6]),
    ({"key": made.KEY[:31]}, [6]),
    ({"key": "k" * 32}, [6]),
    ({"commitment": "ab" * 32}, [6]),
    ({"commitment": "AB" * 32}, [6]),
    ({"commitment": None}, [6]),
    ({"before": 4}, [7]),
    ({"ordinal": 2}, [6]),
    ({"before": -1}, [7]),
    ({"before": True}, [7]),
    ({"releases": 1}, [7]),
    ({"releases": 1 << 21}, [7]),
    ({"releases": None}, [7]),
]


@pytest.mark.parametrize("change", CLAIMS, ids=lambda change: str(list(change[0])))
def test_a_field_that_was_tampered_with_does_not_pass(
    change: tuple[dict[str, Any], list[int]],
) -> None:
    assert judge(noisy_claim(**change[0])) == change[1]


@pytest.mark.parametrize("change", NOISES, ids=lambda change: str(list(change[0])))
def test_noise_that_was_tampered_with_does_not_pass(
    change: tuple[dict[str, Any], list[int]],
) -> None:
    assert judge(noisy_claim(change[0])) == change[1]


def test_every_field_is_tampered_with() -> None:
    assert {name for change, _ in CLAIMS for name in change} == {
        field.name for field in fields(LogisticClaim)
    }
    assert {name for change, _ in NOISES for name in change} == {
        field.name for field in fields(NoiseClaim)
    }


def test_what_is_published_beside_noise_is_no_function_of_the_rows() -> None:
    report = VERIFIER.verify(noisy_claim())
    bound = float(report.checks[4].value)
    assert bound == 2.0 ** round(np.log2(bound))
    assert report.checks[6].value == "release 2 of 4, within its allowance"


@pytest.mark.parametrize("releases", [1, 4, 25])
def test_both_sides_allow_each_release_the_same(releases: int) -> None:
    budget = Budget(made.SIGMA, 1.0, 1e-5, releases)
    noise = made.noise_claim(releases=releases, before=releases - 1)
    assert check_budget(noise, budget.allowance).check.passed
    assert not check_budget(noise, 1.001 * budget.allowance).check.passed
    assert not check_budget(noise, np.inf).check.passed
    assert check_budget(noise, 0.0).check.passed


@pytest.mark.parametrize("sigma", [0.0, 0.01])
def test_what_the_method_releases_is_what_the_verifier_proves(sigma: float) -> None:
    case = replace(case_of("ben"), data=made.DATA)
    method = CertifiedNewton(row_norm=12.0, sigma=sigma, releases=4, tolerance=0.1)
    release = method.release(case, made.KEY if sigma else None)
    stay = without(POISONED, "ben")
    features, labels = (
        np.concatenate([getattr(data, name).numpy() for data in stay.values()])
        for name in ("inputs", "targets")
    )
    kept = replace(logistic_claim().retained_set, after_count=len(labels))
    noise = None
    if sigma:
        noise = made.noise_claim(
            centre_bias=release.centre["head.bias"].numpy(),
            centre_weight=release.centre["head.weight"].numpy(),
            before=0,
            ordinal=0,
            commitment=release.notes["noise.commitment"],
        )
    claim = logistic_claim(
        features=features,
        labels=labels,
        retained_set=kept,
        bias=release.weights["head.bias"].numpy(),
        weight=release.weights["head.weight"].numpy(),
        penalty=PENALTY,
        bound=release.bound,
        tolerance=method.tolerance,
        noise=noise,
    )
    # The retained set is another's here; everything about the head passes.
    assert failed(VERIFIER.verify(claim)) == [3]
    assert NETWORK.classes == len(claim.bias)
    # Of its claim float32 at the clients made up most: the proof is not that far from it.
    assert release.residual / 1e4 < distance_above(
        features,
        labels,
        release.centre["head.bias"].numpy(),
        release.centre["head.weight"].numpy(),
        PENALTY,
    )
    assert release.bound > 0
