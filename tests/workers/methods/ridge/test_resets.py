"""Each reason for a reset, planted: the result is always proven and names the reason."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.methods.ridge import oracle
from tests.workers.methods.ridge.oracle import within_bound
from tests.workers.methods.ridge.test_tracked_methods import digest, example
from workers.arrays import Matrix, Rows
from workers.errors import PenaltyError
from workers.methods.ridge.acu import Acu
from workers.methods.ridge.base import Method, Outcome, RidgeConfig, RidgeState
from workers.methods.ridge.ridge_exact import METHOD as EXACT
from workers.methods.ridge.ridge_woodbury import RidgeWoodbury
from workers.methods.ridge.tracked_inverse import BrokenUpdateError, rank_update
from workers.methods.ridge.upkeep import Upkeep

both = pytest.mark.parametrize("kind", [RidgeWoodbury, Acu])
Kind = type[RidgeWoodbury] | type[Acu]
RESETS = ("none", "initial", "infeasible", "ill-conditioned", "tolerance", "scheduled", "batch")


def start(
    method: Method, n: int = 15, d: int = 4, penalty: float = 1.0
) -> tuple[Rows, RidgeConfig, RidgeState]:
    rows, config = example(1, n=n, d=d, c=3, penalty=penalty)
    return rows, config, method.learn(config, None, rows).state


def spoil(state: RidgeState, change: Matrix | float) -> RidgeState:
    assert state.inverse is not None
    return replace(state, inverse=state.inverse * change)


def forget_first(method: Method, config: RidgeConfig, state: RidgeState, rows: Rows) -> Outcome:
    outcome = method.forget(config, state, oracle.only(rows, [0]))
    retained = oracle.without(rows, [0])
    assert digest(outcome.state, config) == digest(
        EXACT.refit(config, [retained]).state, config
    )
    assert within_bound(outcome.state, retained, config)
    assert outcome.notes["reset"] in RESETS
    return outcome


@both
def test_drift_beyond_the_tolerance(kind: Kind) -> None:
    rows, config, state = start(kind())
    outcome = forget_first(kind(), config, spoil(state, 1 + 1e-3), rows)
    assert outcome.notes["reset"] == "tolerance"
    assert outcome.state.updates == 0
    assert outcome.notes["updates_since_reset"] == "0"
    # It is as good as new: the next update needs no reset.
    following = kind().forget(config, outcome.state, oracle.only(rows, [1]))
    assert (following.notes["reset"], following.state.updates) == ("none", 1)


@both
def test_drift_below_the_tolerance_shows_in_the_bound(kind: Kind) -> None:
    rows, config, state = start(kind())
    clean = forget_first(kind(), config, state, rows)
    outcome = forget_first(kind(), config, spoil(state, 1 + 1e-9), rows)
    assert outcome.notes["reset"] == "none"
    assert outcome.state.bound > 10 * clean.state.bound


@both
@given(seed=st.integers(0, 2**32 - 1), size=st.floats(-14, 2))
@settings(max_examples=40, deadline=None)
def test_whatever_the_inverse_holds_the_bound_is_true(
    kind: Kind, seed: int, size: float
) -> None:
    rows, config, state = start(kind())
    noise = np.random.default_rng(seed).normal(size=(4, 4))
    forget_first(kind(), config, spoil(state, 1 + 10**size * (noise + noise.T)), rows)


@both
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_an_inverse_that_is_no_number(kind: Kind, value: float) -> None:
    rows, config, state = start(kind())
    assert state.inverse is not None
    inverse = state.inverse.copy()
    inverse[2, 2] = value
    outcome = forget_first(kind(), config, replace(state, inverse=inverse), rows)
    assert outcome.notes["reset"] != "none"
    assert outcome.state.inverse is not None
    assert np.isfinite(outcome.state.inverse).all()


@both
def test_a_broken_inverse_is_not_kept_even_if_no_row_meets_it(kind: Kind) -> None:
    rows, config, state = start(kind())
    outcome = kind().forget(config, spoil(state, np.nan), oracle.only(rows, []))
    assert outcome.notes["reset"] == "tolerance"
    assert outcome.state.inverse is not None
    assert np.isfinite(outcome.state.inverse).all()


@both
def test_a_head_that_is_no_number(kind: Kind) -> None:
    rows, config, state = start(kind())
    spoiled = replace(state, head=state.head * np.nan)
    assert forget_first(kind(), config, spoiled, rows).notes["reset"] == "tolerance"


@both
def test_a_feasible_removal_that_the_inverse_takes_for_infeasible(kind: Kind) -> None:
    rows, config, state = start(kind())
    outcome = forget_first(kind(), config, spoil(state, 100.0), rows)
    assert outcome.notes["reset"] == "infeasible"


@both
def test_learning_with_an_indefinite_inverse(kind: Kind) -> None:
    rows, config, state = start(kind())
    outcome = kind().learn(config, spoil(state, -100.0), oracle.only(rows, [0]))
    assert outcome.notes["reset"] == "ill-conditioned"
    assert within_bound(outcome.state, oracle.joined([rows, oracle.only(rows, [0])]), config)


@both
def test_a_row_that_alone_holds_up_its_direction(kind: Kind) -> None:
    # Leverage 1 - 2^-30. Upkeep's own tolerance would have asked for a larger penalty.
    method = kind(upkeep=Upkeep(tolerance=2.0**-15))
    config = RidgeConfig(2, 2, (0, 0), 16, 1.0)
    codes = np.array([[32767, 0], [0, 3], [0, 5]], dtype=np.int16)
    rows = Rows(codes, np.array([0, 1, 0]))
    state = method.learn(config, None, rows).state
    outcome = forget_first(method, config, state, rows)
    assert outcome.notes["reset"] == "ill-conditioned"


@both
def test_a_reset_by_schedule(kind: Kind) -> None:
    method = kind(upkeep=Upkeep(reset_every=3))
    rows, config, state = start(method)
    state = EXACT.refit(config, [rows]).state
    seen = []
    for i in range(8):
        outcome = method.forget(config, state, oracle.only(rows, [i]))
        seen.append((outcome.notes["reset"], outcome.state.updates))
        state = outcome.state
    assert seen == [
        ("initial", 0),
        ("none", 1),
        ("none", 2),
        ("scheduled", 0),
        ("none", 1),
        ("none", 2),
        ("scheduled", 0),
        ("none", 1),
    ]


@both
def test_a_model_of_another_method_that_float64_cannot_prove(kind: Kind) -> None:
    rows, config = example()
    weak = replace(config, penalty=1e-5)
    state = EXACT.learn(weak, None, rows).state
    with pytest.raises(PenaltyError, match="use the method ridge-exact"):
        kind(upkeep=Upkeep(tolerance=1e-14)).forget(weak, state, oracle.only(rows, [0]))


@pytest.mark.parametrize("sign", [+1, -1])
@pytest.mark.parametrize(("d", "k"), [(1, 1), (7, 1), (7, 3), (130, 5), (65, 65)])
def test_a_rank_update_against_inversion(d: int, k: int, sign: int) -> None:
    rng = np.random.default_rng(d + k)
    rows = rng.normal(size=(d + k, d))
    matrix = rows.T @ rows + 2 * np.eye(d)
    roots = rows[:k].copy()
    inverse = np.linalg.inv(matrix)
    inverse = (inverse + inverse.T) / 2
    update = rank_update(inverse, roots, sign)
    want = np.linalg.inv(matrix + sign * roots.T @ roots)
    assert np.allclose(update.inverse, want, rtol=1e-9, atol=1e-11)
    assert np.allclose(update.gain, want @ roots.T, rtol=1e-9, atol=1e-11)
    assert (update.inverse == update.inverse.T).all()


def test_lemma_1_decides_at_the_edge() -> None:
    inverse = np.diag([0.25, 1.0])
    inside, outside = np.array([[1.999, 0.0]]), np.array([[2.001, 0.0]])
    rank_update(inverse, inside, -1)
    with pytest.raises(BrokenUpdateError, match="infeasible"):
        rank_update(inverse, outside, -1)
    assert Fraction(0.25) * Fraction(1.999) ** 2 < 1 < Fraction(0.25) * Fraction(2.001) ** 2
