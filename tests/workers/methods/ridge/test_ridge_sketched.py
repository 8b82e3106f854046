"""Sketched messages against rational arithmetic and refitting: bounds, drift and resets."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzz
from tests.workers.methods.ridge import oracle
from tests.workers.methods.ridge.oracle import within_bound
from tests.workers.methods.ridge.sketches.oracle import decaying_codes, norm_is_at_most
from workers.arrays import IntMatrix, Rows
from workers.artifacts import decode_state, encode_state
from workers.errors import ArtifactError, InfeasibleRemovalError, PenaltyError, RefusedError
from workers.methods.ridge import base, ridge_exact, ridge_sketched, ridge_woodbury
from workers.methods.ridge.base import Outcome, RidgeConfig, RidgeState
from workers.methods.ridge.ridge_sketched import RidgeSketched, configured
from workers.methods.ridge.sketches.kinds import compress, known
from workers.methods.ridge.sketches.sketch import expand
from workers.methods.ridge.statistics.gram import RidgeStatistics, statistics_digest
from workers.methods.ridge.statistics.message import Batch, Message, summarise

EXACT = ridge_exact.METHOD
METHOD = ridge_sketched.METHOD
every = pytest.mark.parametrize("kind", known())


def example(
    seed: int = 0, n: int = 120, d: int = 20, c: int = 3, penalty: float = 20.0
) -> tuple[Rows, RidgeConfig]:
    codes = decaying_codes(seed, n, d)
    labels = np.random.default_rng(seed).integers(0, c, n)
    return Rows(codes, labels), RidgeConfig(d, c, (-13,) * d, 16, penalty)


def digest(state: RidgeState, config: RidgeConfig) -> str:
    return statistics_digest(state.statistics, config.exponents, config.bits, config.penalty)


def norm(matrix: Any) -> float:
    return float(np.linalg.norm(matrix))


def distance(state: RidgeState, rows: Rows, config: RidgeConfig) -> float:
    return norm(state.head - EXACT.refit(config, [rows]).state.witness.sum(axis=0))


def drifted(state: RidgeState) -> IntMatrix:
    assert state.sketched is not None
    return state.sketched.gram - state.statistics.gram


@given(
    seed=st.integers(0, 2**32 - 1),
    penalty=st.floats(1e-2, 1e5),
    rank=st.integers(1, 4),
    kind=st.sampled_from(known()),
    data=st.data(),
)
@fuzz(120)
def test_any_stream_of_adds_and_deletes(
    seed: int, penalty: float, rank: int, kind: str, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    rows = oracle.random_rows(rng, 15, 4, 3)
    exponents = tuple(int(e) for e in rng.integers(-16, -10, 4))
    config = RidgeConfig(4, 3, exponents, 16, penalty)
    method = RidgeSketched(kind=kind, rank=rank, tolerance=0.99)
    start: int = data.draw(st.integers(1, 15))
    state = method.learn(config, None, oracle.only(rows, range(start))).state
    held = set(range(start))
    for _ in range(data.draw(st.integers(1, 6))):
        absent = sorted(set(range(15)) - held)
        grow = data.draw(st.booleans())
        if absent and grow:
            batch = data.draw(st.sets(st.sampled_from(absent), min_size=1))
            outcome = method.learn(config, state, oracle.only(rows, sorted(batch)))
            held |= batch
        elif held:
            batch = data.draw(st.sets(st.sampled_from(sorted(held)), min_size=1))
            outcome = method.forget(config, state, oracle.only(rows, sorted(batch)))
            held -= batch
        else:
            break
        state = outcome.state
        retained = oracle.only(rows, sorted(held))
        assert outcome.claim == "certified-approximate"
        assert digest(state, config) == digest(EXACT.refit(config, [retained]).state, config)
        assert within_bound(state, retained, config)
        assert norm_is_at_most(drifted(state), list(exponents), state.drift)
        assert state.bound <= 0.99 * norm(state.head)
        # The bounds known before the head was solved for, and before it was proven.
        gap, loose = distance(state, retained, config), 1e-5 * norm(state.head)
        assert gap <= float(outcome.notes["bound.resolvent"]) * (1 + 1e-6) + loose
        prior = next(v for k, v in outcome.notes.items() if k in ("bound.add", "bound.delete"))
        assert gap <= float(prior) * (1 + 1e-6) + loose


@every
def test_a_deletion_follows_its_sketch_and_not_the_ledger(kind: str) -> None:
    rows, config = example()
    method = RidgeSketched(kind=kind, rank=10, tolerance=0.5)
    gone, retained = oracle.only(rows, range(30)), oracle.only(rows, range(30, 120))
    state = method.learn(config, None, rows).state
    outcome = method.forget(config, state, gone)
    after = outcome.state
    assert outcome.notes["reset"] == "none"
    assert (outcome.notes["sketch"], outcome.notes["rank"]) == (kind, "10")
    assert 0 < float(outcome.notes["residual"]) == after.drift == float(outcome.notes["drift"])
    assert digest(after, config) == digest(EXACT.refit(config, [retained]).state, config)
    gap = distance(after, retained, config)
    assert 1e-7 * norm(after.head) < gap <= after.bound <= 0.5 * norm(after.head)
    # The head is that of the sum of sketches, which a NumPy solve confirms.
    assert after.sketched is not None
    step = 2.0**-13
    sketched = after.sketched.gram * step**2 + config.penalty * np.eye(20)
    want = np.linalg.solve(sketched, after.statistics.moment * step)
    assert norm(after.head - want) < 1e-9 * norm(want)
    assert (
        gap <= float(outcome.notes["bound.resolvent"]) <= float(outcome.notes["bound.delete"])
    )
    assert after.bound <= float(outcome.notes["bound.resolvent"]) * 1.001
    # A record left in is not within the bound of a finer sketch.
    fine = RidgeSketched(kind=kind, rank=20).forget(config, state, gone).state
    left_in = EXACT.refit(config, [oracle.only(rows, range(29, 120))]).state
    assert norm(fine.head - left_in.witness.sum(axis=0)) > 10 * fine.bound


@every
def test_batches_no_larger_than_the_rank_hardly_drift(kind: str) -> None:
    rows, config = example(n=60)
    method = RidgeSketched(kind=kind, rank=5)
    state = method.learn(config, None, rows).state
    for i in range(0, 25, 5):
        outcome = method.forget(config, state, oracle.only(rows, range(i, i + 5)))
        assert outcome.notes["reset"] == "none"
        state = outcome.state
    back = method.learn(config, state, oracle.only(rows, range(25)))
    assert state.drift < 1e-6 * config.penalty
    assert state.bound < 1e-6 * norm(state.head)
    assert state.updates == 5
    if back.notes["reset"] == "none":
        assert back.state.drift > state.drift


def test_forgetting_what_was_learned_by_the_same_sketch_leads_back() -> None:
    rows, config = example()
    method = RidgeSketched(rank=6, tolerance=0.9)
    first = method.learn(config, None, rows).state
    batch = Rows(decaying_codes(9, 20, 20) // 16, rows.labels[:20])
    learned = method.learn(config, first, batch)
    back = method.forget(config, learned.state, batch)
    assert (learned.notes["reset"], back.notes["reset"]) == ("none", "none")
    # The errors cancel, though their bounds add up, because that is not known.
    assert drifted(learned.state).any()
    assert not drifted(back.state).any()
    assert back.state.drift > learned.state.drift > 0
    assert back.state.bound < 1e-9 * norm(back.state.head)


def test_the_budget_ends_in_an_exact_reset() -> None:
    rows, config = example(n=200)
    method = RidgeSketched(rank=10)
    state = method.learn(config, None, rows).state
    seen: list[tuple[str, float]] = []
    for i in range(0, 150, 15):
        outcome = method.forget(config, state, oracle.only(rows, range(i, i + 15)))
        retained = oracle.only(rows, range(i + 15, 200))
        state = outcome.state
        assert distance(state, retained, config) <= state.bound <= 2.0**-7 * norm(state.head)
        seen.append((outcome.notes["reset"], state.drift))
        if outcome.notes["reset"] != "none":
            assert_reset(outcome, retained, config)
    resets = [reset for reset, _ in seen]
    assert "tolerance" in resets
    assert "none" in resets
    following = [a[1] < b[1] for a, b in pairwise(seen) if b[0] == "none"]
    assert all(following)


def assert_reset(outcome: Outcome, retained: Rows, config: RidgeConfig) -> None:
    """The statistics are followed exactly, and the head is as good as float64 can."""
    state, refitted = outcome.state, METHOD.refit(config, [retained]).state
    assert state.sketched is not None
    assert (state.drift, state.updates) == (0.0, 0)
    assert np.array_equal(state.sketched.gram, state.statistics.gram)
    assert encode_state(state) == encode_state(refitted)
    assert distance(state, retained, config) <= state.bound + 1e-15 * norm(state.head)
    assert state.bound < 1e-10 * norm(state.head)
    assert outcome.notes["drift"] == "0.0"


def test_a_sketch_that_neglects_more_than_the_penalty_is_not_deleted() -> None:
    rows, config = example(penalty=0.05)
    method = RidgeSketched(rank=1, tolerance=0.9)
    state = method.learn(config, None, rows).state
    outcome = method.forget(config, state, oracle.only(rows, range(40)))
    assert outcome.notes["reset"] == "drift"
    assert float(outcome.notes["residual"]) > config.penalty
    assert_reset(outcome, oracle.only(rows, range(40, 120)), config)


def test_but_it_may_be_added_to_an_exact_state() -> None:
    rows, config = example(penalty=0.5)
    method = RidgeSketched(rank=10, tolerance=0.99)
    state = method.learn(config, None, oracle.only(rows, range(80))).state
    outcome = method.learn(config, state, oracle.only(rows, range(80, 120)))
    assert float(outcome.notes["residual"]) > config.penalty
    assert outcome.notes["reset"] in ("none", "tolerance")  # not "drift"
    again = method.learn(config, replace(state, drift=0.6), oracle.only(rows, range(80, 120)))
    assert again.notes["reset"] == "drift"


def test_a_schedule_resets() -> None:
    rows, config = example()
    method = RidgeSketched(reset_every=3)
    state = EXACT.refit(config, [rows]).state
    seen = []
    for i in range(7):
        outcome = method.forget(config, state, oracle.only(rows, [i]))
        seen.append((outcome.notes["reset"], outcome.state.updates))
        state = outcome.state
    scheduled = [("none", 1), ("none", 2), ("scheduled", 0)]
    assert seen == [("initial", 0), *scheduled, *scheduled]


@pytest.mark.parametrize(
    ("factor", "reasons"),
    [(np.nan, {"infeasible", "tolerance"}), (1e3, {"infeasible"}), (1.3, {"tolerance"})],
)
def test_a_spoiled_inverse_is_found_out(factor: float, reasons: set[str]) -> None:
    rows, config = example()
    state = METHOD.learn(config, None, rows).state
    assert state.inverse is not None
    spoiled = replace(state, inverse=state.inverse * factor)
    outcome = METHOD.forget(config, spoiled, oracle.only(rows, range(5)))
    assert outcome.notes["reset"] in reasons
    assert_reset(outcome, oracle.only(rows, range(5, 120)), config)


def test_the_bound_is_true_whatever_the_sketched_sum_holds() -> None:
    rows, config = example(n=12, d=4)
    state = METHOD.learn(config, None, rows).state
    assert state.sketched is not None
    assert state.inverse is not None
    other = RidgeStatistics(state.sketched.gram // 2, state.sketched.moment, 12)
    lying = replace(
        state, sketched=other, inverse=state.inverse * 1.001, head=state.head * 1.001
    )
    outcome = METHOD.forget(config, lying, oracle.only(rows, [0]))
    assert within_bound(outcome.state, oracle.only(rows, range(1, 12)), config)


def test_methods_hand_over_to_each_other() -> None:
    rows, config = example()
    state = ridge_woodbury.METHOD.learn(config, None, rows).state
    outcome = RidgeSketched(rank=6, tolerance=0.9).forget(
        config, state, oracle.only(rows, range(20))
    )
    assert outcome.notes["reset"] == "none"
    assert outcome.state.drift > 0
    # Variant B expects the inverse of the exact statistics, and detects that it is not.
    taken = ridge_woodbury.METHOD.forget(config, outcome.state, oracle.only(rows, [20]))
    assert taken.notes["reset"] == "tolerance"
    assert (taken.state.sketched, taken.state.drift) == (None, 0.0)
    exact = EXACT.forget(config, outcome.state, oracle.only(rows, [20])).state
    retained = oracle.only(rows, range(21, 120))
    assert encode_state(exact) == encode_state(EXACT.refit(config, [retained]).state)


def test_forgetting_everything_and_nothing() -> None:
    rows, config = example(n=15)
    state = METHOD.learn(config, None, rows).state
    same = METHOD.forget(config, state, oracle.only(rows, []))
    assert same.state.head.tobytes() == state.head.tobytes()
    assert same.state.drift == 0
    empty = METHOD.forget(config, state, rows).state
    assert empty.statistics.rows == empty.statistics.gram.any() == 0
    assert norm(empty.head) <= empty.bound or not empty.head.any()
    assert digest(METHOD.learn(config, empty, rows).state, config) == digest(state, config)


def test_a_decoded_state_goes_on_identically() -> None:
    rows, config = example()
    method = RidgeSketched(rank=10, tolerance=0.9)
    kept = method.learn(config, None, rows).state
    read = decode_state(encode_state(kept))
    for i in range(0, 60, 20):
        batch = oracle.only(rows, range(i, i + 20))
        outcome = method.forget(config, kept, batch)
        kept = outcome.state
        read = decode_state(encode_state(method.forget(config, read, batch).state))
        assert encode_state(read) == encode_state(kept)
        assert read.sketched is not None
        assert kept.sketched is not None
        assert np.array_equal(read.sketched.gram, kept.sketched.gram)
        assert (read.drift, read.attested) == (kept.drift, kept.attested)
    assert kept.drift > 0


def spoilt_states() -> dict[str, RidgeState]:
    rows, config = example()
    state = RidgeSketched(rank=6, tolerance=0.5).learn(config, None, rows).state
    assert state.sketched is not None
    gram, moment = state.sketched.gram.copy(), state.sketched.moment
    gram[0, 1] += 1
    return {
        "NaN": replace(state, drift=float("nan")),
        "infinite": replace(state, attested=float("inf")),
        "negative": replace(state, drift=-1.0),
        "of nothing": replace(state, sketched=None, drift=1.0),
        "attested to nothing": replace(state, sketched=None, attested=1.0),
        "asymmetric": replace(state, sketched=RidgeStatistics(gram, moment, 120)),
        "other rows": replace(state, sketched=replace(state.sketched, rows=119)),
        "other moment": replace(state, sketched=replace(state.sketched, moment=moment + 1)),
        "small": replace(state, sketched=RidgeStatistics(gram[:2, :2], moment, 120)),
    }


@pytest.mark.parametrize("how", list(spoilt_states()))
def test_a_state_of_sketches_that_do_not_fit_is_not_written(how: str) -> None:
    with pytest.raises(ArtifactError, match="sketch"):
        encode_state(spoilt_states()[how])


def test_a_changed_drift_is_another_file_and_a_changed_kind_none() -> None:
    rows, config = example()
    data = encode_state(METHOD.learn(config, None, rows).state)
    assert b"ridge-state-sketched/1" in data
    with pytest.raises(ArtifactError, match="canonical state"):
        decode_state(data.replace(b"ridge-state-sketched/1", b"ridge-state-tracked/1 "))
    other = data.replace(b'drift\\":\\"0x0.0p+0', b'drift\\":\\"0x1.0p+9')
    assert other != data
    with pytest.raises(ArtifactError, match="canonical state"):
        decode_state(other)  # 0x1.0000000000000p+9 is its spelling


# Messages


def message(rows: Rows, config: RidgeConfig) -> Message:
    return summarise(rows, config.dimension, config.classes, bits=config.bits)


@pytest.mark.parametrize("sign", ["learn", "forget"])
def test_an_exact_message_gives_what_its_rows_give(sign: str) -> None:
    rows, config = example()
    method = RidgeSketched(kind="random-projection", rank=6, tolerance=0.9)
    state = method.learn(config, None, rows).state
    batch = oracle.only(rows, range(20))
    by_rows = getattr(method, sign)(config, state, batch)
    by_message = getattr(method, sign)(config, state, message(batch, config))
    assert encode_state(by_message.state) == encode_state(by_rows.state)
    assert dict(by_message.notes) == dict(by_rows.notes)


def test_refitting_any_mixture_of_rows_and_messages() -> None:
    rows, config = example()
    parts = [oracle.only(rows, range(i, 120, 4)) for i in range(4)]
    mixed: list[Batch] = [
        parts[0],
        message(parts[1], config),
        parts[2],
        message(parts[3], config),
    ]
    refitted = METHOD.refit(config, iter(mixed)).state
    assert encode_state(refitted) == encode_state(METHOD.refit(config, [rows]).state)


def sketched_model(rank: int) -> tuple[Rows, RidgeConfig, RidgeState, RidgeSketched]:
    """A model that knows some of its rows by an attested sketch only."""
    rows, config = example(penalty=2000.0)
    method = RidgeSketched(tolerance=0.5)
    state = method.learn(config, None, oracle.only(rows, range(60))).state
    _, small = compress(message(oracle.only(rows, range(60, 120)), config), rank)
    assert small.residual > 0
    outcome = method.learn(config, state, small)
    assert outcome.notes["reset"] == "none"
    assert float(outcome.notes["attested"]) == outcome.state.attested > 0
    assert outcome.state.attested == small.residual * 4.0**-13
    return rows, config, outcome.state, method


@pytest.mark.parametrize("rank", [3, 10, 16])
def test_what_was_never_seen_stays_in_the_bound(rank: int) -> None:
    rows, config, state, method = sketched_model(rank)
    assert distance(state, rows, config) <= state.bound
    by_ledger = EXACT.refit(config, [rows]).state
    assert digest(state, config) != digest(by_ledger, config)
    # A reset makes the ledger exact, not the rows known.
    again = replace(method, reset_every=1).forget(config, state, oracle.only(rows, [0]))
    retained = oracle.only(rows, range(1, 120))
    assert (again.notes["reset"], again.state.drift) == ("scheduled", 0.0)
    assert again.state.attested == state.attested
    assert 0 < distance(again.state, retained, config) <= again.state.bound
    assert again.state.bound >= again.state.attested / config.penalty * norm(again.state.head)


def test_a_residual_far_too_small_is_not_plausible() -> None:
    rows, config = example(penalty=2000.0)
    first, second = oracle.only(rows, range(60)), oracle.only(rows, range(60, 120))
    _, small = compress(message(second, config), 1)
    method = RidgeSketched(tolerance=0.5)
    honest = method.refit(config, [first, small]).state
    assert distance(honest, rows, config) <= honest.bound
    with pytest.raises(RefusedError, match="Cauchy-Schwarz"):
        method.refit(config, [first, replace(small, residual=1.0)])


def test_forgetting_a_sketch_adds_its_residual_again() -> None:
    rows, config, state, method = sketched_model(10)
    _, small = compress(message(oracle.only(rows, range(60, 120)), config), 10)
    outcome = method.forget(config, state, small)
    assert outcome.state.attested >= 2 * state.attested
    assert digest(outcome.state, config) == digest(
        EXACT.refit(config, [oracle.only(rows, range(60))]).state, config
    )
    assert distance(outcome.state, oracle.only(rows, range(60)), config) <= outcome.state.bound


@pytest.mark.parametrize("as_message", [True, False], ids=["message", "rows"])
def test_a_record_that_was_only_sketched_can_be_forgotten_exactly(as_message: bool) -> None:
    # The remaining ledger need not be the statistics of any rows, only close to some.
    rows, config, state, method = sketched_model(10)
    gone, retained = oracle.only(rows, [70, 99]), oracle.without(rows, [70, 99])
    batch = message(gone, config) if as_message else gone
    after = method.forget(config, state, batch).state
    assert after.attested == state.attested
    assert 0 < distance(after, retained, config) <= after.bound
    with pytest.raises(InfeasibleRemovalError):
        method.forget(config, replace(state, attested=0.0), message(gone, config))


def test_too_coarse_a_sketch_is_refused_and_changes_nothing() -> None:
    rows, config = example(penalty=20.0)
    state = METHOD.learn(config, None, oracle.only(rows, range(60))).state
    before = encode_state(state)
    _, small = compress(message(oracle.only(rows, range(60, 120)), config), 2)
    with pytest.raises(RefusedError, match="sketches of a higher rank"):
        METHOD.learn(config, state, small)
    with pytest.raises(RefusedError, match="sketches of a higher rank"):
        METHOD.refit(config, [small])
    assert encode_state(state) == before


@pytest.mark.parametrize("method", [EXACT, ridge_woodbury.METHOD, base.method_named("acu")])
def test_no_other_method_claims_exactness_of_such_a_model(method: Any) -> None:
    rows, config, state, _ = sketched_model(10)
    for update in (method.forget, method.learn):
        with pytest.raises(RefusedError, match="use the method ridge-sketched"):
            update(config, state, oracle.only(rows, [0]))
    _, small = compress(message(rows, config), 10)
    with pytest.raises(RefusedError, match="ridge-sketched"):
        method.refit(config, [small])


# Refusals


def test_refusals_name_a_remedy_and_change_nothing() -> None:
    rows, config = example(n=6)
    state = METHOD.learn(config, None, rows).state
    before = encode_state(state)
    other = RidgeConfig(20, 5, config.exponents, 16, 70.0)
    with pytest.raises(RefusedError, match="another number of columns"):
        METHOD.forget(other, state, rows)
    with pytest.raises(RefusedError, match="of another number of columns"):
        METHOD.learn(config, state, message(rows, other))
    with pytest.raises(InfeasibleRemovalError, match="12 rows are to be forgotten, and only 6"):
        METHOD.forget(config, state, oracle.joined([rows, rows]))
    with pytest.raises(RefusedError, match="label lies outside"):
        METHOD.learn(config, state, Rows(rows.codes[:1], np.array([3])))
    foreign = message(Rows(rows.codes[:1] // 2, rows.labels[:1]), config)
    with pytest.raises(InfeasibleRemovalError, match="not part of this model"):
        METHOD.forget(
            config, METHOD.forget(config, state, oracle.only(rows, [0])).state, foreign
        )
    with pytest.raises(PenaltyError, match="penalty of at least"):
        METHOD.learn(replace(config, penalty=1e-14), None, rows)
    assert encode_state(state) == before


def test_an_infeasible_removal_is_refused() -> None:
    # As for Variant B: the diagonal could be, and the matrix is not positive definite.
    config = RidgeConfig(2, 2, (-10, -10), 16, 0.5)
    codes = np.full((40, 2), 1000, dtype=np.int16)
    state = METHOD.learn(config, None, Rows(codes, np.arange(40) % 2)).state
    foreign = Rows(np.array([[2000, -2000]], dtype=np.int16), np.array([0]))
    with pytest.raises(InfeasibleRemovalError, match=r"not all learned .* each once"):
        METHOD.forget(config, state, foreign)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "secret"}, "choose one of eigen"),
        ({"kind": 3}, "options of a sketch"),
        ({"rank": 0}, "rank must be at least 1"),
        ({"rank": True}, "options of a sketch"),
        ({"rank": "8"}, "options of a sketch"),
        ({"seed": -1}, "seed 0 or more"),
        ({"tolerance": 1.0}, "reset_every 1 or more"),
        ({"tolerance": 2.0**-26}, "reset_every 1 or more"),
        ({"tolerance": float("nan")}, "reset_every 1 or more"),
        ({"reset_every": 0}, "reset_every 1 or more"),
        ({"secret": 1}, "unknown option"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(RefusedError, match=words) as refusal:
        configured(options)
    assert "secret" not in str(refusal.value)


def test_options_and_the_default_rank() -> None:
    method = configured(
        {"kind": "frequent-directions", "rank": 9, "tolerance": 0.25, "seed": 4}
    )
    assert (method.kind, method.rank, method.tolerance, method.seed) == (
        "frequent-directions",
        9,
        0.25,
        4,
    )
    assert configured({}) == METHOD == base.method_named("ridge-sketched")
    assert [METHOD.rank_for(d) for d in (1, 3, 40, 256, 768)] == [1, 1, 10, 64, 64]
    assert method.rank_for(5) == 5


def test_the_sketch_in_the_state_is_the_one_that_was_sent() -> None:
    rows, config = example()
    method = RidgeSketched(rank=6, tolerance=0.9)
    state = method.learn(config, None, rows).state
    batch = oracle.only(rows, range(20))
    after = method.forget(config, state, batch).state
    sent, _ = compress(message(batch, config), 6, codes=batch.codes)
    assert after.sketched is not None
    assert state.sketched is not None
    # Equal steps in all columns: codes and features are sketched alike.
    assert np.array_equal(
        state.sketched.gram - after.sketched.gram, expand(sent.factor, sent.shift)
    )
