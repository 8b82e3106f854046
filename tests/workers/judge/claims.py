"""True claims of a small erasure, for tests to spoil one thing at a time."""

import hashlib
from dataclasses import dataclass

import numpy as np

from tests.workers.methods.ridge import oracle
from workers.arrays import Rows
from workers.judge.base import Probe, PurgeClaim, RetainedSetClaim
from workers.judge.merkle import merkle_root
from workers.judge.ridge.claim import ExactClaim, RidgeClaim
from workers.methods.ridge.base import RidgeConfig, RidgeState
from workers.methods.ridge.ridge_exact import METHOD
from workers.methods.ridge.statistics.encoding import statistics_digest

N, D, C = 40, 7, 3
ERASED = (4, 11, 30)


@dataclass(frozen=True)
class Erasure:
    rows: Rows  # before
    retained: Rows
    config: RidgeConfig
    after: RidgeState


def erasure(seed: int = 0) -> Erasure:
    rng = np.random.default_rng(seed)
    rows = oracle.random_rows(rng, N, D, C)
    codes = rows.codes.copy()
    codes[:, 2] = 0  # a silent column
    rows = Rows(codes, rows.labels)
    exponents = tuple(int(e) for e in rng.integers(-16, -10, D))
    config = RidgeConfig(D, C, exponents, 16, 0.3)
    state = METHOD.learn(config, None, rows).state
    after = METHOD.forget(config, state, oracle.only(rows, ERASED)).state
    return Erasure(rows, oracle.without(rows, ERASED), config, after)


def ridge_claim(state: RidgeState, config: RidgeConfig) -> RidgeClaim:
    return RidgeClaim(
        dimension=config.dimension,
        classes=config.classes,
        exponents=config.exponents,
        bits=config.bits,
        penalty=config.penalty,
        statistics_digest=statistics_digest(
            state.statistics, config.exponents, config.bits, config.penalty
        ),
        head=state.head,
        witness=state.witness,
        bound=state.bound,
    )


def commitment(row: int) -> bytes:
    return hashlib.sha256(f"salted {row}".encode()).digest()


def retained_set_claim() -> RetainedSetClaim:
    before = sorted(commitment(row) for row in range(N))
    after = sorted(commitment(row) for row in range(N) if row not in ERASED)
    return RetainedSetClaim(
        before=before,
        after=after,
        erased=[commitment(row) for row in ERASED],
        before_root=merkle_root(before),
        before_count=len(before),
        after_root=merkle_root(after),
        after_count=len(after),
    )


def purge_claim() -> PurgeClaim:
    return PurgeClaim(
        probes=[Probe("head", "ab" * 32, False), Probe("state", "cd" * 32, False)],
        erased_rows=[str(row) for row in ERASED],
        retained_rows=[str(row) for row in range(N) if row not in ERASED],
    )


def exact_claim(of: Erasure) -> ExactClaim:
    blocks = [oracle.only(of.retained, range(start, len(of.retained), 3)) for start in range(3)]
    return ExactClaim(
        ridge_claim(of.after, of.config), blocks, retained_set_claim(), purge_claim()
    )
