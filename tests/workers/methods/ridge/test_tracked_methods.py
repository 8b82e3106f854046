"""Variant B and ACU against rational arithmetic and against refitting, on any stream."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.methods.ridge import oracle
from tests.workers.methods.ridge.oracle import within_bound
from workers.arrays import Head, Matrix, Rows
from workers.artifacts import decode_state, encode_state
from workers.errors import InfeasibleRemovalError, PenaltyError, RefusedError
from workers.methods.ridge import acu, base, ridge_exact, ridge_woodbury
from workers.methods.ridge.base import Method, Outcome, RidgeConfig, RidgeState
from workers.methods.ridge.statistics.gram import statistics_digest
from workers.methods.ridge.upkeep import Tracked, prove_head

EXACT = ridge_exact.METHOD
METHODS: list[Method] = [ridge_woodbury.METHOD, acu.METHOD]
both = pytest.mark.parametrize("method", METHODS, ids=[m.id for m in METHODS])


def example(
    seed: int = 0, n: int = 80, d: int = 20, c: int = 4, penalty: float = 70.0
) -> tuple[Rows, RidgeConfig]:
    rng = np.random.default_rng(seed)
    rows = oracle.random_rows(rng, n, d, c)
    exponents = tuple(int(e) for e in rng.integers(-16, -10, d))
    return rows, RidgeConfig(d, c, exponents, 16, penalty)


def digest(state: RidgeState, config: RidgeConfig) -> str:
    return statistics_digest(state.statistics, config.exponents, config.bits, config.penalty)


def gap(state: RidgeState, reference: RidgeState) -> float:
    return float(np.linalg.norm(state.head - reference.witness.sum(axis=0)))


def norm(matrix: Head | Matrix) -> float:
    return float(np.linalg.norm(matrix))


@both
@given(seed=st.integers(0, 2**32 - 1), penalty=st.floats(1e-2, 1e4), data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_stream_has_the_statistics_of_a_refit_and_a_head_within_its_bound(
    method: Method, seed: int, penalty: float, data: st.DataObject
) -> None:
    rows, config = example(seed, n=15, d=4, c=3, penalty=penalty)
    start = data.draw(st.integers(1, 15))
    state = method.learn(config, None, oracle.only(rows, range(start))).state
    held = set(range(start))
    for _ in range(data.draw(st.integers(1, 5))):
        absent = sorted(set(range(15)) - held)
        grow = data.draw(st.booleans())
        if absent and grow:
            new = data.draw(st.sets(st.sampled_from(absent), min_size=1))
            state = method.learn(config, state, oracle.only(rows, sorted(new))).state
            held |= new
        elif held:
            gone = data.draw(st.sets(st.sampled_from(sorted(held)), min_size=1))
            state = method.forget(config, state, oracle.only(rows, sorted(gone))).state
            held -= gone
    order = data.draw(st.permutations(sorted(held)))
    retained = oracle.only(rows, order)
    refitted = EXACT.refit(config, [retained]).state
    assert digest(state, config) == digest(refitted, config)
    assert within_bound(state, retained, config)
    assert state.head.dtype == np.float64
    assert state.bound <= 2.0**-25 * norm(state.head)


@both
def test_a_deletion_is_an_update_and_not_a_refit(method: Method) -> None:
    rows, config = example()
    learned = method.learn(config, None, rows)
    outcome = method.forget(config, learned.state, oracle.only(rows, [3, 4]))
    retained = oracle.without(rows, [3, 4])
    want = oracle.refit_by_svd(retained, config)
    assert norm(outcome.state.head - want) < 1e-11 * norm(want)
    assert outcome.claim == "numerically-exact"
    assert outcome.notes["reset"] == "none"
    assert int(outcome.notes["updates_since_reset"]) == outcome.state.updates >= 1
    assert float(outcome.notes["bound"]) == outcome.state.bound
    assert 0 < outcome.state.bound < 1e-11 * norm(want)
    assert outcome.state.head.tobytes() == outcome.state.witness.tobytes()
    assert outcome.work.rows == 2
    assert 0 < outcome.work.flops < learned.work.flops
    left_in = oracle.refit_by_svd(oracle.without(rows, [3]), config)
    assert norm(outcome.state.head - left_in) > 1e-6 * norm(want)


@both
def test_variant_a_agrees_within_the_two_bounds(method: Method) -> None:
    rows, config = example(n=200)
    mine = method.learn(config, None, rows).state
    theirs = EXACT.learn(config, None, rows).state
    for i in range(30):
        one = oracle.only(rows, [i])
        mine, theirs = (
            method.forget(config, mine, one).state,
            EXACT.forget(config, theirs, one).state,
        )
        assert digest(mine, config) == digest(theirs, config)
        assert gap(mine, theirs) <= mine.bound + theirs.bound + 1e-15 * norm(theirs.head)


@both
def test_forgetting_then_learning_again_leads_back(method: Method) -> None:
    rows, config = example()
    state = first = method.learn(config, None, rows).state
    for i in (5, 17, 42):
        state = method.forget(config, state, oracle.only(rows, [i])).state
    for i in (42, 5, 17):
        outcome = method.learn(config, state, oracle.only(rows, [i]))
        assert outcome.notes["reset"] == "none"
        state = outcome.state
    assert digest(state, config) == digest(first, config)
    assert norm(state.head - first.head) <= state.bound + first.bound


@both
def test_duplicates_go_one_at_a_time(method: Method) -> None:
    rows, config = example()
    twice = oracle.joined([rows, oracle.only(rows, [0])])
    state = method.learn(config, None, twice).state
    once = method.forget(config, state, oracle.only(rows, [0])).state
    whole = EXACT.refit(config, [rows]).state
    assert digest(once, config) == digest(whole, config)
    assert gap(once, whole) <= once.bound * (1 + 1e-12) + whole.bound


@both
def test_forgetting_everything_is_a_head_of_zeros(method: Method) -> None:
    rows, config = example(n=15)
    state = method.learn(config, None, rows).state
    empty = method.forget(config, state, rows).state
    assert (empty.statistics.rows, empty.bound) == (0, 0.0)
    assert not empty.head.view(np.uint64).any()
    again = method.learn(config, empty, rows).state
    assert digest(again, config) == digest(state, config)
    assert norm(again.head - state.head) <= again.bound + state.bound


@both
@pytest.mark.parametrize("gone", [1, 10, 11, 20, 60, 120], ids=lambda k: f"{k} rows")
def test_a_batch_of_any_size(method: Method, gone: int) -> None:
    rows, config = example(n=150)
    state = method.learn(config, None, rows).state
    outcome = method.forget(config, state, oracle.only(rows, range(gone)))
    refitted = EXACT.refit(config, [oracle.only(rows, range(gone, 150))]).state
    assert digest(outcome.state, config) == digest(refitted, config)
    assert gap(outcome.state, refitted) <= outcome.state.bound + refitted.bound
    large = method.id == "ridge-woodbury" and gone > 20 / 2
    assert outcome.notes["reset"] == ("batch" if large else "none")
    back = method.learn(config, outcome.state, oracle.only(rows, range(gone)))
    assert norm(back.state.head - state.head) <= back.state.bound + state.bound


@both
def test_no_rows_change_nothing(method: Method) -> None:
    rows, config = example()
    state = method.learn(config, None, rows).state
    outcome = method.forget(config, state, oracle.only(rows, []))
    assert digest(outcome.state, config) == digest(state, config)
    assert outcome.state.head.tobytes() == state.head.tobytes()


@both
def test_a_decoded_state_goes_on_identically(method: Method) -> None:
    rows, config = example()
    kept = method.learn(config, None, rows).state
    read = decode_state(encode_state(kept))
    for i in range(4):
        one = oracle.only(rows, [i])
        kept = method.forget(config, kept, one).state
        outcome = method.forget(config, read, one)
        assert outcome.notes["reset"] == "none"
        read = decode_state(encode_state(outcome.state))
        assert encode_state(read) == encode_state(kept)


@both
def test_methods_are_interchangeable_on_a_model(method: Method) -> None:
    rows, config = example()
    one, two, three = (oracle.only(rows, [i]) for i in range(3))
    exact = EXACT.learn(config, None, rows).state
    started = method.forget(config, exact, one)
    assert started.notes["reset"] == "initial"
    went_on = method.forget(config, started.state, two)
    assert (went_on.notes["reset"], went_on.state.updates) == ("none", 1)
    finished = EXACT.forget(config, went_on.state, three).state
    straight = EXACT.refit(config, [oracle.without(rows, [0, 1, 2])]).state
    assert encode_state(finished) == encode_state(straight)
    assert finished.inverse is None


def test_variant_b_and_acu_continue_each_other() -> None:
    rows, config = example()
    state = acu.METHOD.learn(config, None, rows).state
    outcome = ridge_woodbury.METHOD.forget(config, state, oracle.only(rows, [0]))
    assert outcome.notes["reset"] == "none"
    outcome = acu.METHOD.forget(config, outcome.state, oracle.only(rows, [1]))
    assert outcome.notes["reset"] == "none"
    refitted = EXACT.refit(config, [oracle.without(rows, [0, 1])]).state
    assert gap(outcome.state, refitted) <= outcome.state.bound + refitted.bound


def test_acu_has_its_head_from_the_matrix_and_the_forgotten_rows_alone() -> None:
    rows, config = example()
    state = acu.METHOD.learn(config, None, rows).state
    gone = oracle.only(rows, [7, 8])
    outcome = acu.METHOD.forget(config, state, gone)
    assert state.inverse is not None
    alone = acu.recur(config, Tracked(state.inverse, state.head.astype(np.float64)), [gone], -1)
    after = prove_head(alone.weights, outcome.state.statistics, config).head
    assert after.tobytes() == outcome.state.head.tobytes()
    assert outcome.state.inverse is not None
    assert alone.inverse.tobytes() == outcome.state.inverse.tobytes()


def test_acu_learns_the_same_from_any_blocks() -> None:
    rows, config = example(n=400)
    whole = acu.METHOD.refit(config, iter([rows])).state
    parts = [oracle.only(rows, range(i, 400, 7)) for i in range(7)]
    split = acu.METHOD.refit(config, iter(parts)).state
    assert digest(split, config) == digest(whole, config)
    assert norm(split.head - whole.head) <= split.bound + whole.bound


@both
def test_the_state_given_stays_as_it_was(method: Method) -> None:
    rows, config = example()
    state = method.learn(config, None, rows).state
    before = encode_state(state)
    method.forget(config, state, oracle.only(rows, [1]))
    method.learn(config, state, oracle.only(rows, [1]))
    assert encode_state(state) == before
    assert state.inverse is not None
    with pytest.raises(ValueError, match="read-only"):
        state.inverse[0, 0] = 1.0


@both
def test_an_infeasible_removal_is_refused_by_lemma_1(method: Method) -> None:
    # 40 rows along (1, 1): removing one along (1, -1) leaves a diagonal that could be, and
    # a matrix that is not positive definite.
    config = RidgeConfig(2, 2, (-10, -10), 16, 0.5)
    codes = np.full((40, 2), 1000, dtype=np.int16)
    state = method.learn(config, None, Rows(codes, np.arange(40) % 2)).state
    before = encode_state(state)
    foreign = Rows(np.array([[2000, -2000]], dtype=np.int16), np.array([0]))
    with pytest.raises(InfeasibleRemovalError, match=r"not all learned .* each once"):
        method.forget(config, state, foreign)
    untracked = replace(state, inverse=None)
    with pytest.raises(InfeasibleRemovalError, match="not all learned"):
        method.forget(config, untracked, foreign)
    assert encode_state(state) == before


@both
def test_refusals_name_a_remedy_and_change_nothing(method: Method) -> None:
    rows, config = example(n=6)
    state = method.learn(config, None, rows).state
    before = encode_state(state)
    other = RidgeConfig(20, 5, config.exponents, 16, 70.0)
    wide = Rows(np.full((1, 20), 300, dtype=np.int16), np.array([0]))
    foreign_label = Rows(rows.codes[:1], np.array([4]))
    with pytest.raises(RefusedError, match="another number of columns"):
        method.forget(other, state, rows)
    with pytest.raises(RefusedError, match="another number of columns"):
        method.learn(other, state, rows)
    with pytest.raises(InfeasibleRemovalError, match="12 rows are to be forgotten, and only 6"):
        method.forget(config, state, oracle.joined([rows, rows]))
    with pytest.raises(RefusedError, match="exceeds 8 bits"):
        method.forget(replace(config, bits=8), state, wide)
    with pytest.raises(RefusedError, match="label lies outside"):
        method.learn(config, state, foreign_label)
    assert encode_state(state) == before


@both
def test_a_penalty_too_small_for_float64_is_refused_when_learning(method: Method) -> None:
    rows, config = example()
    weak = replace(config, penalty=1e-5)
    EXACT.learn(weak, None, rows)  # the canonical head can still be proven
    with pytest.raises(PenaltyError, match=r"at least .* or the method ridge-exact") as refusal:
        method.learn(weak, None, rows)
    enough = float(str(refusal.value).split("at least ")[1].split(",")[0])
    config = replace(config, penalty=enough)
    state = method.learn(config, None, rows).state
    for kept in (60, 20, 3, 0):
        gone = oracle.only(rows, range(kept, state.statistics.rows))
        state = method.forget(config, state, gone).state
        assert within_bound(state, oracle.only(rows, range(kept)), config) or kept > 20


@both
@pytest.mark.parametrize("penalty", [1e-250, 1e-100, 1e-12, 1e12, 1e100, 1e250])
def test_units_do_not_matter(method: Method, penalty: float) -> None:
    # The same problem in other units: steps and penalty move together, as far as steps go.
    shift = max(-140, min(150, round(np.log2(penalty) / 2)))
    rows, config = example(n=30, d=5)
    config = RidgeConfig(
        5, 4, tuple(e + shift for e in config.exponents), 16, 70.0 * 4.0**shift
    )
    state = method.learn(config, None, rows).state
    outcome = method.forget(config, state, oracle.only(rows, [0]))
    assert outcome.notes["reset"] == "none"
    assert within_bound(outcome.state, oracle.without(rows, [0]), config)
    assert outcome.state.bound <= 1e-10 * norm(outcome.state.head)


def test_an_outcome_of_variant_a_has_no_notes() -> None:
    rows, config = example()
    outcome: Outcome = EXACT.learn(config, None, rows)
    assert (outcome.claim, dict(outcome.notes)) == ("exact", {})


def test_the_registry_knows_them_all() -> None:
    assert base.method_names() == ("acu", "ridge-exact", "ridge-sketched", "ridge-woodbury")
    assert base.method_named("acu") is acu.METHOD
    assert base.method_named("ridge-woodbury") is ridge_woodbury.METHOD


@both
@pytest.mark.parametrize("forgotten", [1, 40])
def test_a_removal_allocates_little_more_than_the_state_it_returns(
    method: Method, forgotten: int
) -> None:
    d = 600
    rows, config = example(n=60, d=d, penalty=1e4)
    state = method.learn(config, None, rows).state
    gone = oracle.only(rows, range(forgotten))
    method.forget(config, state, gone)  # imports and caches are not the removal's
    tracemalloc.start()
    outcome = method.forget(config, state, gone)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert outcome.notes["reset"] == "none"
    assert peak < 2.6 * 8 * d**2  # G and the inverse after it are two of them
