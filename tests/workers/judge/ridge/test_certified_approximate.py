"""The third guarantee: a head that follows sketches, judged by the registered budget."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.judge.claims import (
    ERASED,
    C,
    D,
    erasure,
    exact_claim,
    ridge_claim,
    unseen,
)
from tests.workers.methods.ridge import oracle
from workers.arrays import Matrix, Rows
from workers.judge import registry
from workers.judge.base import Report
from workers.judge.ridge.claim import ClaimedStatistics, ExactClaim, RidgeClaim
from workers.judge.ridge.head import check_certified, root_above, square_of_norm
from workers.judge.ridge.statistics import recompute
from workers.methods.ridge import ridge_sketched
from workers.methods.ridge.base import RidgeConfig, RidgeState
from workers.methods.ridge.ridge_sketched import RidgeSketched
from workers.methods.ridge.sketches.kinds import compress
from workers.methods.ridge.statistics.message import summarise

BUDGET = 0.4
TRUE = replace(erasure(), config=replace(erasure().config, penalty=30.0))
METHOD = RidgeSketched(rank=2, tolerance=BUDGET)
BEFORE = METHOD.learn(TRUE.config, None, TRUE.rows).state
AFTER = METHOD.forget(TRUE.config, BEFORE, oracle.only(TRUE.rows, ERASED))


def claim_of(state: RidgeState, config: RidgeConfig, **changes: Any) -> ExactClaim:
    """A true claim of a sketched state, except for `changes` in its ridge part."""
    ridge = ridge_claim(state, config)
    fields = {"tolerance": BUDGET, "witness": ridge.head[:0, None], **changes}
    return replace(exact_claim(TRUE), ridge=replace(ridge, **fields))


def claim(**changes: Any) -> ExactClaim:
    return claim_of(AFTER.state, TRUE.config, **changes)


def judge(of: ExactClaim, guarantee: str = "certified-approximate") -> Report:
    return registry.get(guarantee).verify(of)


def failed(report: Report) -> list[int]:
    return [check.number for check in report.checks if not check.passed]


def test_a_true_claim_passes() -> None:
    assert AFTER.notes["reset"] == "none"
    assert AFTER.claim == "certified-approximate"
    report = judge(claim())
    assert report.result == "PASS"
    assert [(c.number, c.name) for c in report.checks] == [
        (1, "statistics-recomputed"),
        (2, "head-certified"),
        (3, "retained-set"),
        (4, "purge"),
    ]
    low, high = report.checks[1].interval or ("", "")
    assert (low, high) == ("0", report.checks[1].value)
    # It follows a sketch of rank 2 of three rows, and the verifier sees how far off that is.
    assert 1e-4 * np.linalg.norm(AFTER.state.head) < float(high) <= AFTER.state.bound * 1.01
    assert "0.4 * norm of the head" in str(report.checks[1].threshold)


def test_what_is_claimed_is_what_the_verifier_proves_and_no_more() -> None:
    # ROOM in the claim covers all that the verifier may round otherwise.
    proven = float(judge(claim()).checks[1].value)
    assert proven == pytest.approx(AFTER.state.bound, rel=0.02)
    assert failed(judge(claim(bound=AFTER.state.bound * (1 - 2.0**-10)))) == [2]
    assert failed(judge(claim(bound=AFTER.state.bound * 2))) == []


@pytest.mark.parametrize("mode", ["full", "freivalds"])
def test_with_claimed_statistics_as_well(mode: str) -> None:
    told = ClaimedStatistics(
        AFTER.state.statistics.gram, AFTER.state.statistics.moment, AFTER.state.statistics.rows
    )
    report = judge(claim(statistics=told, mode=mode, seed=bytes(range(32))))
    assert report.result == "PASS"
    assert [check.number for check in report.checks] == [1, 2, 3, 4, 5]


def test_the_sketched_statistics_are_not_taken_for_the_exact_ones() -> None:
    sketched = AFTER.state.sketched
    assert sketched is not None
    told = ClaimedStatistics(sketched.gram, sketched.moment, sketched.rows)
    digest = ridge_claim(replace(AFTER.state, statistics=sketched), TRUE.config)
    report = judge(claim(statistics=told, statistics_digest=digest.statistics_digest))
    assert failed(report) == [1, 5]
    assert report.result == "FAIL"


def test_a_stricter_guarantee_is_not_met() -> None:
    report = judge(claim(tolerance=1e-6), "numerically-exact")
    assert failed(report) == [2]


def pushed(by: float) -> Matrix:
    """The head moved by `by` times its norm in one direction."""
    head = np.asarray(AFTER.state.head, dtype=np.float64)
    direction = np.random.default_rng(0).normal(size=head.shape)
    moved: Matrix = head + by * np.linalg.norm(head) * direction / np.linalg.norm(direction)
    return moved


NAN = pushed(0.0)
NAN[0, 0] = float("nan")


@pytest.mark.parametrize(
    ("changes", "numbers"),
    [
        ({"head": pushed(0.0)}, []),
        ({"head": pushed(0.5)}, [2]),
        ({"head": pushed(0.5), "bound": 1e9}, [2]),
        ({"head": pushed(0.5), "bound": 1e9, "tolerance": 0.999}, []),
        ({"bound": AFTER.state.bound / 2}, [2]),
        ({"bound": 0.0}, [2]),
        ({"tolerance": 1e-6}, [2]),
        ({"tolerance": 0.0}, [2]),
        ({"tolerance": 1.0}, [2]),
        ({"tolerance": float("nan")}, [2]),
        ({"tolerance": None}, [2]),
        ({"tolerance": "1"}, [2]),
        ({"attested": 1e-6 * AFTER.state.bound}, []),
        ({"attested": 1e3}, [2]),
        ({"attested": -1.0}, [2]),
        ({"attested": float("nan")}, [2]),
        ({"attested": float("inf")}, [2]),
        ({"attested": None}, [2]),
        ({"bound": float("nan")}, [2]),
        ({"bound": float("inf")}, [2]),
        ({"bound": -1.0}, [2]),
        ({"bound": None}, [2]),
        ({"head": NAN}, [2]),
        ({"head": None}, [2]),
        ({"head": pushed(0.0).astype(np.float32)}, [2]),
        ({"head": pushed(0.0)[:, :2]}, [2]),
        ({"head": np.zeros((D, C))}, [2]),
        ({"head": np.full((D, C), 1e308), "bound": 1e308}, [2]),
        ({"penalty": 0.0}, [1, 2]),
        ({"penalty": 3.0}, [1, 2]),
        ({"exponents": (2**14,) * D}, [1, 2]),
        ({"witness": None}, []),
    ],
)
def test_odd_claims_fail_and_never_raise(changes: dict[str, Any], numbers: list[int]) -> None:
    report = judge(claim(**changes))
    assert failed(report) == numbers
    assert report.result == ("FAIL" if numbers else "PASS")


@pytest.mark.parametrize(
    "rows",
    [TRUE.rows, oracle.without(TRUE.rows, ERASED[:2]), oracle.without(TRUE.rows, [4, 11, 31])],
    ids=["nothing done", "one left in", "wrong record"],
)
def test_the_model_of_other_rows_fails(rows: Rows) -> None:
    # Every constant of the claim is consistent; only the rows are not those retained.
    state = METHOD.refit(TRUE.config, [rows]).state
    report = judge(claim_of(state, TRUE.config))
    assert failed(report) == [1, 2]
    assert report.result == "FAIL"


def test_with_true_statistics_a_record_left_in_the_head_fails_a_fine_budget() -> None:
    left_in = METHOD.refit(TRUE.config, [oracle.without(TRUE.rows, ERASED[:2])]).state
    report = judge(claim(head=left_in.head, bound=left_in.bound))
    assert failed(report) == [2]
    assert report.checks[1].value.startswith("the claimed bound is below the proven")
    # Nor does a bound that covers it, if the budget does not.
    report = judge(claim(head=left_in.head, bound=1e6, tolerance=2.0**-7))
    assert failed(report) == [2]
    assert report.checks[1].value.endswith("exceeds the registered budget")


def attested_example() -> tuple[ExactClaim, RidgeClaim, Rows]:
    """A model that knows half of its rows by a sketch, with a claim about its messages."""
    config = replace(TRUE.config, penalty=3e4)
    method = RidgeSketched(tolerance=BUDGET)
    first, second = oracle.only(TRUE.rows, range(20)), oracle.only(TRUE.rows, range(20, 40))
    _, small = compress(summarise(second, D, C, bits=16), 4)
    state = method.refit(config, [first, small]).state
    assert state.attested > 0
    ridge = replace(
        ridge_claim(state, config),
        tolerance=BUDGET,
        witness=state.witness[:0],
        attested=state.attested,
    )
    messages = [summarise(first, D, C, bits=16).statistics, small.statistics]
    told = [ClaimedStatistics(m.gram, m.moment, m.rows) for m in messages]
    return replace(unseen(exact_claim(TRUE), told), ridge=ridge), ridge, TRUE.rows


def test_what_is_attested_widens_the_bound() -> None:
    _, ridge, rows = attested_example()
    # Judged by the rows, which the ledger only approximates, the bound is true.
    weights = oracle.solve(rows, replace(TRUE.config, penalty=ridge.penalty))
    head = np.asarray(ridge.head, dtype=np.float64)
    assert oracle.squared_distance(head[None], weights) <= Fraction(ridge.bound) ** 2
    by_rows = check_certified(replace(ridge, attested=0.0), recompute([rows], D, C, 16))
    assert by_rows.check.passed
    # What the rows prove is far beyond the ledger's own bound.
    assert float(by_rows.check.value) > 100 * without_attested(ridge)


def test_a_claim_that_leaves_out_what_is_attested_fails() -> None:
    of, ridge, _ = attested_example()
    gram = sum((m.gram for m in of.messages or []), np.zeros((D, D), dtype=np.int64))
    moment = sum((m.moment for m in of.messages or []), np.zeros((D, C), dtype=np.int64))
    ledger = replace(recompute([TRUE.rows], D, C, 16), gram=gram, moment=moment)
    assert check_certified(ridge, ledger).check.passed
    alone = without_attested(ridge)
    judged = check_certified(replace(ridge, bound=alone), ledger)
    assert not judged.check.passed
    assert "below the proven" in judged.check.value
    assert check_certified(replace(ridge, bound=alone, attested=0.0), ledger).check.passed


def without_attested(ridge: RidgeClaim) -> float:
    """The ledger's own bound, slightly increased."""
    unseen = ridge.attested / ridge.penalty * float(np.linalg.norm(ridge.head))
    return ridge.bound - unseen * (1 - 2.0**-20)


@given(st.integers(0, 2**32 - 1), st.floats(-300, 150))
@settings(max_examples=100, deadline=None)
def test_a_root_above_is_above_and_close(seed: int, size: float) -> None:
    head = np.random.default_rng(seed).normal(size=(3, 2)) * 10.0**size
    square = square_of_norm(head)
    assert square == sum(Fraction(float(x)) ** 2 for x in head.ravel())
    root = root_above(square)
    assert square <= root**2 <= square * (1 + Fraction(1, 2**55))


@pytest.mark.parametrize("square", [0, 1, 2, 3, 2**200, Fraction(1, 3), Fraction(1, 2**2000)])
def test_roots_of_awkward_numbers(square: Fraction) -> None:
    root = root_above(Fraction(square))
    assert square <= root**2 <= square * (1 + Fraction(1, 2**55))


def test_the_registry_knows_it() -> None:
    assert "certified-approximate" in registry.known()
    assert registry.get("certified-approximate").version == "4"
    assert ridge_sketched.METHOD.tolerance == 2.0**-7
