"""Unlearned must equal retrained, as files, also in another process on other kernels."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.methods.ridge import oracle
from workers.arrays import Rows
from workers.artifacts import encode_head
from workers.errors import InfeasibleRemovalError, PenaltyError, RefusedError
from workers.methods.ridge import base
from workers.methods.ridge.base import RidgeConfig, RidgeState
from workers.methods.ridge.ridge_exact import METHOD
from workers.methods.ridge.statistics.gram import statistics_digest

ROOT = Path(__file__).parents[4]


def fingerprint(state: RidgeState, config: RidgeConfig) -> tuple[str, str]:
    """(head file's digest, statistics' digest)."""
    statistics = statistics_digest(
        state.statistics, config.exponents, config.bits, config.penalty
    )
    return sha256(encode_head(state.head, config)).hexdigest(), statistics


def example(seed: int = 0, n: int = 80, d: int = 20, c: int = 4) -> tuple[Rows, RidgeConfig]:
    rng = np.random.default_rng(seed)
    rows = oracle.random_rows(rng, n, d, c)
    exponents = tuple(int(e) for e in rng.integers(-16, -10, d))
    return rows, RidgeConfig(d, c, exponents, 16, 0.7)


@given(st.integers(0, 2**32 - 1), st.data())
@settings(max_examples=40, deadline=None)
def test_any_stream_of_learning_and_forgetting_ends_where_retraining_does(
    seed: int, data: st.DataObject
) -> None:
    rows, config = example(seed, n=15, d=4, c=3)
    start = data.draw(st.integers(1, 15))
    state = METHOD.learn(config, None, oracle.only(rows, range(start))).state
    held = set(range(start))
    for _ in range(data.draw(st.integers(1, 4))):
        absent = sorted(set(range(15)) - held)
        grow = data.draw(st.booleans())
        if absent and grow:
            new = data.draw(st.sets(st.sampled_from(absent), min_size=1))
            state = METHOD.learn(config, state, oracle.only(rows, sorted(new))).state
            held |= new
        elif held:
            gone = data.draw(st.sets(st.sampled_from(sorted(held)), min_size=1))
            state = METHOD.forget(config, state, oracle.only(rows, sorted(gone))).state
            held -= gone
    order = data.draw(st.permutations(sorted(held)))
    blocks = [oracle.only(rows, order[part::3]) for part in range(3)]
    assert fingerprint(METHOD.refit(config, blocks).state, config) == fingerprint(state, config)


@pytest.mark.parametrize(
    "environment",
    [
        {"OPENBLAS_NUM_THREADS": "1"},
        {"OPENBLAS_NUM_THREADS": "2", "OPENBLAS_CORETYPE": "Nehalem"},
    ],
    ids=["one thread", "other kernels"],
)
def test_retraining_in_another_process_gives_the_same_file(
    environment: dict[str, str], tmp_path: Path
) -> None:
    rows, config = example(n=300, d=70, c=6)
    gone = [5, 77, 140]
    state = METHOD.learn(config, None, rows).state
    after = METHOD.forget(config, state, oracle.only(rows, gone)).state
    retained = oracle.without(rows, gone)
    one_left_in = oracle.without(rows, gone[:2])
    unlearned, _ = fingerprint(after, config)
    assert retrained_elsewhere(retained, config, environment, tmp_path) == unlearned
    assert retrained_elsewhere(one_left_in, config, environment, tmp_path) != unlearned


def retrained_elsewhere(
    rows: Rows, config: RidgeConfig, environment: dict[str, str], folder: Path
) -> str:
    path = folder / "rows.npz"
    np.savez(
        path,
        codes=rows.codes,
        labels=rows.labels,
        classes=config.classes,
        exponents=config.exponents,
        penalty=config.penalty,
    )
    done = subprocess.run(
        [sys.executable, "-m", "tests.workers.methods.ridge.retrain", str(path), "37"],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_one_record_left_in_changes_both_digests() -> None:
    rows, config = example()
    state = METHOD.learn(config, None, rows).state
    after = METHOD.forget(config, state, oracle.only(rows, [3, 4])).state
    left_in = METHOD.refit(config, [oracle.without(rows, [3])]).state
    ours, theirs = fingerprint(after, config), fingerprint(left_in, config)
    assert ours[0] != theirs[0]
    assert ours[1] != theirs[1]


def test_a_duplicate_record_goes_once() -> None:
    rows, config = example()
    twice = oracle.joined([rows, oracle.only(rows, [0])])
    state = METHOD.learn(config, None, twice).state
    after = METHOD.forget(config, state, oracle.only(rows, [0])).state
    whole = METHOD.refit(config, [rows]).state
    assert fingerprint(after, config) == fingerprint(whole, config)


def test_forgetting_everything_is_a_model_that_knows_nothing() -> None:
    rows, config = example(n=5)
    state = METHOD.learn(config, None, rows).state
    after = METHOD.forget(config, state, rows).state
    assert after.statistics.rows == 0
    assert not after.statistics.gram.any()
    assert not after.head.view(np.uint32).any()
    empty = METHOD.refit(config, []).state
    assert fingerprint(after, config) == fingerprint(empty, config)


def test_the_witness_is_far_closer_than_float64_to_a_refit_by_svd() -> None:
    rows, config = example()
    outcome = METHOD.learn(config, None, rows)
    want = oracle.refit_by_svd(rows, config)
    got = outcome.state.witness.sum(axis=0)
    assert np.linalg.norm(got - want) < 1e-9 * np.linalg.norm(want)
    assert 0 < outcome.state.bound < 1e-18 * np.linalg.norm(want)
    assert outcome.claim == "exact"


def test_the_work_is_accounted() -> None:
    rows, config = example()
    learned = METHOD.learn(config, None, rows)
    forgotten = METHOD.forget(config, learned.state, oracle.only(rows, [0, 1]))
    assert (learned.work.rows, forgotten.work.rows) == (80, 2)
    assert 0 < forgotten.work.flops < learned.work.flops
    assert forgotten.work.seconds > 0


def test_the_state_given_stays_as_it_was() -> None:
    rows, config = example()
    state = METHOD.learn(config, None, rows).state
    before = fingerprint(state, config)
    METHOD.forget(config, state, oracle.only(rows, [1]))
    METHOD.learn(config, state, oracle.only(rows, [1]))
    assert fingerprint(state, config) == before
    with pytest.raises(ValueError, match="read-only"):
        state.head[0, 0] = 1.0


def test_refusals_name_a_remedy_and_change_nothing() -> None:
    rows, config = example(n=6)
    state = METHOD.learn(config, None, rows).state
    before = fingerprint(state, config)
    other = RidgeConfig(20, 5, config.exponents, 16, 0.7)
    foreign = oracle.random_rows(np.random.default_rng(99), 5, 20, 4)
    with pytest.raises(RefusedError, match="another number of columns"):
        METHOD.forget(other, state, rows)
    with pytest.raises(InfeasibleRemovalError, match="12 rows are to be forgotten, and only 6"):
        METHOD.forget(config, state, oracle.joined([rows, rows]))
    once = METHOD.forget(config, state, rows).state
    with pytest.raises(InfeasibleRemovalError, match="1 rows are to be forgotten, and only 0"):
        METHOD.forget(config, once, oracle.only(rows, [0]))
    with pytest.raises(InfeasibleRemovalError, match="not all learned"):
        METHOD.forget(config, state, oracle.joined([foreign, oracle.only(foreign, [0])]))
    assert fingerprint(state, config) == before


def test_a_penalty_that_works_now_but_not_after_a_deletion_is_refused_when_learning() -> None:
    rows, config = example()  # of full rank until rows go
    weak = RidgeConfig(20, 4, config.exponents, 16, 1e-20)
    METHOD.refit(weak, [rows])
    with pytest.raises(PenaltyError, match=r"after some deletions .* at least"):
        METHOD.learn(weak, None, rows)
    with pytest.raises(PenaltyError, match="at least"):
        METHOD.refit(weak, [oracle.only(rows, range(5))])


def test_the_registry_knows_it_by_name() -> None:
    assert base.method_named("ridge-exact") is METHOD
    assert "ridge-exact" in base.method_names()
    with pytest.raises(RefusedError, match="ridge-exact"):
        base.method_named("magic")
