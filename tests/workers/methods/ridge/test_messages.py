"""Messages in place of rows: the same integers, and heads within their bounds."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.methods.ridge import oracle
from tests.workers.methods.ridge.oracle import within_bound
from tests.workers.methods.ridge.test_tracked_methods import digest, example, norm
from workers.arrays import Matrix, Rows
from workers.artifacts import encode_state
from workers.errors import InfeasibleRemovalError, RefusedError
from workers.methods.ridge import (
    acu,
    ridge_exact,
    ridge_woodbury,
)
from workers.methods.ridge.base import Method, RidgeConfig, RidgeState
from workers.methods.ridge.statistics.message import (
    Batch,
    Message,
    add_messages,
    summarise,
    with_factor,
)
from workers.methods.ridge.tracked_inverse import message_roots

EXACT = ridge_exact.METHOD
TRACKED: list[Method] = [ridge_woodbury.METHOD, acu.METHOD]
ALL: list[Method] = [EXACT, *TRACKED]
tracked = pytest.mark.parametrize("method", TRACKED, ids=[m.id for m in TRACKED])
every = pytest.mark.parametrize("method", ALL, ids=[m.id for m in ALL])
FORMS = ("rows", "triangle", "factor", "two clients")


def message_of(rows: Rows, config: RidgeConfig) -> Message:
    return summarise(rows, config.dimension, config.classes, bits=config.bits)


def batch_of(rows: Rows, config: RidgeConfig, form: str) -> Batch:
    if form == "rows":
        return rows
    if form == "triangle":
        return message_of(rows, config)
    if form == "factor":
        return with_factor(message_of(rows, config), rows)
    halves = [oracle.only(rows, range(start, len(rows), 2)) for start in range(2)]
    return add_messages(
        [with_factor(message_of(half, config), half) for half in halves], bits=config.bits
    )


def some(data: st.DataObject, of: Sequence[int]) -> list[int]:
    return sorted(data.draw(st.sets(st.sampled_from(of), min_size=1)))


@every
@given(seed=st.integers(0, 2**32 - 1), penalty=st.floats(1e-2, 1e4), data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_mixture_of_rows_and_messages_is_a_refit_on_the_retained_rows(
    method: Method, seed: int, penalty: float, data: st.DataObject
) -> None:
    rows, config = example(seed, n=15, d=6, c=3, penalty=penalty)
    form = st.sampled_from(FORMS)
    held = set(some(data, range(15)))
    first = batch_of(oracle.only(rows, sorted(held)), config, data.draw(form))
    state = method.learn(config, None, first).state
    for _ in range(data.draw(st.integers(1, 5))):
        absent = sorted(set(range(15)) - held)
        grow = data.draw(st.booleans())
        if absent and grow:
            new = some(data, absent)
            batch = batch_of(oracle.only(rows, new), config, data.draw(form))
            state = method.learn(config, state, batch).state
            held |= set(new)
        elif held:
            gone = some(data, sorted(held))
            batch = batch_of(oracle.only(rows, gone), config, data.draw(form))
            state = method.forget(config, state, batch).state
            held -= set(gone)
    retained = oracle.only(rows, data.draw(st.permutations(sorted(held))))
    refitted = EXACT.refit(config, [retained]).state
    assert digest(state, config) == digest(refitted, config)
    assert within_bound(state, retained, config)
    if method is EXACT:
        assert state.head.tobytes() == refitted.head.tobytes()
        assert encode_state(state) == encode_state(refitted)


@every
@given(seed=st.integers(0, 2**32 - 1), data=st.data())
@settings(max_examples=20, deadline=None)
def test_a_refit_takes_any_partition_into_any_forms(
    method: Method, seed: int, data: st.DataObject
) -> None:
    rows, config = example(seed, n=12, d=4, c=3)
    order = data.draw(st.permutations(range(12)))
    cuts = sorted(data.draw(st.sets(st.integers(1, 11), max_size=4)))
    blocks = [
        batch_of(oracle.only(rows, order[a:b]), config, data.draw(st.sampled_from(FORMS)))
        for a, b in zip([0, *cuts], [*cuts, 12], strict=True)
    ]
    state = method.refit(config, iter(blocks)).state
    assert digest(state, config) == digest(EXACT.refit(config, [rows]).state, config)
    assert within_bound(state, rows, config)


@tracked
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sign", [+1, -1])
def test_a_message_of_few_rows_is_an_update_and_no_reset(
    method: Method, form: str, sign: int
) -> None:
    rows, config = example()
    few = batch_of(oracle.only(rows, [2, 3, 5, 7]), config, form)
    rest = oracle.without(rows, [2, 3, 5, 7])
    if sign > 0:
        outcome = method.learn(config, method.learn(config, None, rest).state, few)
    else:
        outcome = method.forget(config, method.learn(config, None, rows).state, few)
    want = oracle.refit_by_svd(rows if sign > 0 else rest, config)
    assert outcome.notes["reset"] == "none"
    assert norm(outcome.state.head - want) < 1e-11 * norm(want)
    assert outcome.state.bound < 1e-11 * norm(want)
    assert outcome.work.rows == 4


@tracked
def test_a_message_of_many_rows_without_a_factor_is_a_reset(method: Method) -> None:
    rows, config = example()
    state = method.learn(config, None, rows).state
    six = oracle.only(rows, range(6))  # of 20 columns
    outcome = method.forget(config, state, message_of(six, config))
    assert (outcome.notes["reset"], outcome.state.updates) == ("batch", 0)
    outcome = method.forget(config, state, with_factor(message_of(six, config), six))
    assert outcome.notes["reset"] == "none"


def test_acu_starts_from_messages_that_bring_a_factor() -> None:
    rows, config = example()
    whole = message_of(rows, config)
    outcome = acu.METHOD.learn(config, None, with_factor(whole, rows))
    assert (outcome.notes["reset"], outcome.state.updates) == ("none", 1)
    assert acu.METHOD.learn(config, None, whole).notes["reset"] == "batch"


def lie(factor: Matrix, kind: str) -> Matrix:
    if kind == "NaN":
        return np.full_like(factor, np.nan)
    if kind == "another width":
        return factor[:, :-1].copy()
    if kind == "huge":
        return factor * 1e200
    if kind == "wider than the rows":
        return np.zeros((5, factor.shape[1]))
    if kind == "nothing":
        return factor[:0].copy()
    return factor * {"scaled": 1.01, "zero": 0.0, "too much": 30.0}[kind]


LIES = {
    "scaled": "tolerance",
    "zero": "tolerance",
    "nothing": "tolerance",
    "too much": "infeasible",
    "huge": "infeasible",
    "NaN": "none",  # of no use as a factor, so that one is computed
    "another width": "none",
    "wider than the rows": "none",
}


@tracked
@pytest.mark.parametrize(("kind", "reset"), LIES.items(), ids=LIES.keys())
def test_a_forged_factor_costs_a_reset_and_moves_nothing(
    method: Method, kind: str, reset: str
) -> None:
    rows, config = example(n=15, d=8, c=3, penalty=1.0)
    state = method.learn(config, None, rows).state
    two, rest = oracle.only(rows, [0, 1]), oracle.without(rows, [0, 1])
    honest = with_factor(message_of(two, config), two)
    assert honest.factor is not None
    outcome = method.forget(config, state, replace(honest, factor=lie(honest.factor, kind)))
    assert outcome.notes["reset"] == reset
    assert within_bound(outcome.state, rest, config)
    assert outcome.state.bound <= 2.0**-25 * norm(outcome.state.head)
    assert digest(outcome.state, config) == digest(EXACT.refit(config, [rest]).state, config)


@given(seed=st.integers(0, 2**32 - 1), size=st.floats(-15, 1))
@settings(max_examples=30, deadline=None)
def test_whatever_the_factor_holds_the_bound_is_true(seed: int, size: float) -> None:
    rows, config = example(seed, n=12, d=6, c=2, penalty=3.0)
    two, rest = oracle.only(rows, [0, 1]), oracle.without(rows, [0, 1])
    honest = with_factor(message_of(two, config), two)
    assert honest.factor is not None
    noise = np.triu(np.random.default_rng(seed).normal(size=honest.factor.shape))
    forged = replace(honest, factor=honest.factor * (1 + 10**size * noise))
    for method in TRACKED:
        state = method.learn(config, None, rows).state
        assert within_bound(method.forget(config, state, forged).state, rest, config)


@pytest.mark.parametrize(("n", "d"), [(1, 5), (3, 9), (4, 4), (2, 1)])
def test_roots_without_a_factor_have_the_gram_matrix(n: int, d: int) -> None:
    rows, config = example(n=n, d=d, c=2)
    message = message_of(rows, config)
    features = np.ldexp(rows.codes.astype(np.float64), np.array(config.exponents) - 3)
    roots = message_roots(message, replace(config, penalty=70.0))  # 70 = m·4^3
    assert roots.shape[1] == d
    assert len(roots) <= n
    gram = features.T @ features
    assert np.allclose(roots.T @ roots, gram, rtol=1e-12, atol=1e-12 * gram.max())


@every
def test_a_message_that_was_never_part_is_infeasible(method: Method) -> None:
    # The same diagonal could be left; the matrix would not be positive semidefinite.
    config = RidgeConfig(2, 2, (-10, -10), 16, 0.5)
    codes = np.full((40, 2), 1000, dtype=np.int16)
    state = method.learn(config, None, Rows(codes, np.arange(40) % 2)).state
    before = encode_state(state)
    foreign = Rows(np.array([[200, -200]], dtype=np.int16), np.array([0]))
    with pytest.raises(InfeasibleRemovalError, match="was not part of this model"):
        method.forget(config, state, message_of(foreign, config))
    every_row = message_of(
        Rows(np.full((41, 2), 10, dtype=np.int16), np.arange(41) % 2), config
    )
    with pytest.raises(
        InfeasibleRemovalError, match="41 rows are to be forgotten, and only 40"
    ):
        method.forget(config, state, every_row)
    assert encode_state(state) == before


@every
def test_messages_that_no_rows_have_change_nothing(method: Method) -> None:
    rows, config = example()
    state = method.learn(config, None, rows).state
    before = encode_state(state)
    good = message_of(oracle.only(rows, [0, 1]), config)
    gram = good.statistics.gram.copy()
    gram[0, 0] += 1
    bad = replace(good, statistics=replace(good.statistics, gram=gram))
    other = summarise(oracle.random_rows(np.random.default_rng(0), 3, 4, 2), 4, 2, bits=16)
    for message, reason in (
        (bad, "parity"),
        (other, "another number of columns"),
        (replace(good, residual=1.0), "ridge-sketched"),
    ):
        calls: list[RidgeState | None] = [state, None]
        for start in calls:
            with pytest.raises(RefusedError, match=reason):
                method.learn(config, start, message)
        with pytest.raises(RefusedError, match=reason):
            method.forget(config, state, message)
        with pytest.raises(RefusedError, match=reason):
            method.refit(config, [rows, message])
    assert encode_state(state) == before
