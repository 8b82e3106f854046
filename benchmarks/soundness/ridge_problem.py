"""Small random ridge problems, and the true claim of an exact erasure from them."""

from dataclasses import dataclass

import numpy as np

from benchmarks.soundness import judging
from workers.arrays import Rows
from workers.judge.ridge.claim import (
    ClaimedStatistics,
    ExactClaim,
    Mode,
    RemovalClaim,
    RidgeClaim,
)
from workers.methods.ridge.base import RidgeConfig, RidgeState
from workers.methods.ridge.ridge_exact import METHOD
from workers.methods.ridge.statistics.gram import statistics_digest

BITS = 16
LARGEST = 2 ** (BITS - 1) - 1


@dataclass(frozen=True, slots=True, eq=False)
class RidgeProblem:
    """Rows of a model, those to be erased (places), and the states before and after.

    rng goes on where the drawing of the rows ended: the provider's choices are its own.
    """

    rows: Rows
    erased: tuple[int, ...]
    config: RidgeConfig
    before: RidgeState
    after: RidgeState
    mode: Mode
    seed: bytes
    rng: np.random.Generator

    @property
    def retained(self) -> Rows:
        """The rows that stay, in their order."""
        return without(self.rows, self.erased)


def make_problem(seed: int) -> RidgeProblem:
    """Return a problem of 20 to 80 rows, 5 to 10 columns, 2 to 4 classes; 1 to 4 rows go.

    Fewer rows go than there are columns: they do not fix a head, so answers to them do not.
    Every second one is to be judged by Freivalds' test in place of a recomputation.
    """
    rng = np.random.default_rng([5, seed])
    n, d, c = (int(rng.integers(low, high)) for low, high in ((20, 81), (5, 11), (2, 5)))
    codes = rng.integers(-LARGEST, LARGEST + 1, (n, d)).astype(np.int16)
    rows = Rows(codes, rng.integers(0, c, n))
    erased = tuple(int(row) for row in rng.choice(n, int(rng.integers(1, 5)), replace=False))
    exponents = tuple(int(e) for e in rng.integers(-16, -11, d))
    config = RidgeConfig(d, c, exponents, BITS, float(2.0 ** rng.integers(-2, 3)))
    before = METHOD.learn(config, None, rows).state
    after = METHOD.forget(config, before, only(rows, erased)).state
    mode: Mode = "freivalds" if seed % 2 else "full"
    return RidgeProblem(rows, erased, config, before, after, mode, rng.bytes(32), rng)


def claim(
    problem: RidgeProblem,
    state: RidgeState,
    *,
    stored: Rows | None = None,
    missing: tuple[int, ...] = (),
) -> ExactClaim:
    """Return what is claimed of a state; stored: the retained rows that the verifier finds."""
    config, found = problem.config, state.statistics
    earlier = problem.before.statistics
    ridge = RidgeClaim(
        config.dimension,
        config.classes,
        config.exponents,
        config.bits,
        config.penalty,
        statistics_digest(found, config.exponents, config.bits, config.penalty),
        state.head,
        state.witness,
        state.bound,
        statistics=ClaimedStatistics(found.gram, found.moment, found.rows),
        mode=problem.mode,
        seed=problem.seed,
        before=ClaimedStatistics(earlier.gram, earlier.moment, earlier.rows),
        before_digest=statistics_digest(earlier, config.exponents, config.bits, config.penalty),
    )
    n, kept = len(problem.rows), problem.retained if stored is None else stored
    claims = judging.rows_claims(problem.rows, problem.erased, kept, missing)
    removal = RemovalClaim(claims.link, judging.purge(n, problem.erased, missing))
    return ExactClaim(ridge, claims.blocks, claims.chain, [removal], contents=claims.contents)


def only(rows: Rows, places: tuple[int, ...]) -> Rows:
    """Return the rows at these places."""
    chosen = np.array(places, dtype=np.int64)
    return Rows(rows.codes[chosen], rows.labels[chosen])


def without(rows: Rows, places: tuple[int, ...]) -> Rows:
    """Return the rows at all other places."""
    kept = np.setdiff1d(np.arange(len(rows)), places)
    return Rows(rows.codes[kept], rows.labels[kept])
