"""What keeps a tracked inverse honest: a proven bound after every update, and resets.

The recursion is never trusted. Its head is put into the normal equations of the exact
statistics. If the resulting bound exceeds the tolerance, or the recursion breaks down, or it
has run long enough, inverse and head are recomputed from the statistics (Variant A), and the
reason is noted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from types import MappingProxyType

import numpy as np

from workers.arrays import Matrix
from workers.blas_threads import threads_for
from workers.errors import InfeasibleRemovalError, PenaltyError, RefusedError
from workers.methods.ridge.base import Outcome, RidgeConfig, RidgeState, UpdateWork
from workers.methods.ridge.canonical_head import column_bounds, norm_above
from workers.methods.ridge.ridge_system import (
    ExactResidual,
    check_penalty,
    factorise,
    not_below,
    sufficient_penalty,
)
from workers.methods.ridge.statistics.gram import RidgeStatistics
from workers.methods.ridge.tracked_inverse import BrokenUpdateError, invert

# A float64 head with the error it provably has, from the exact residual.
#
#     ‖W - W*‖_F <= ‖(XᵀX + λI)W - XᵀY‖_F / λ         (λ/2 for sums of unseen rows)
#
# holds for any W, however it was found, so this judges every method alike. The residual is
# formed in integers: entries of W are first rounded to multiples of one power of two a row,
# RESOLUTION bits below the largest, since digits that far down cost time and prove nothing.
RESOLUTION = 64  # bits: moves W by less than 2^-64 of itself, float64 by 2^-53
LARGEST = 2.0**300  # far outside any head, and its square is a float64
# A verifier may evaluate the residual more coarsely than it is evaluated here, and what it
# proves must not exceed what is claimed. Its own sums are within 2**-20.
ROOM = 1 + 2.0**-16


@dataclass(frozen=True, slots=True, eq=False)
class ProvenHead:
    """head (d, c) float64 with ‖head - W*‖_F <= bound; residual is C - (G + λD²)V."""

    head: Matrix
    bound: float
    residual: ExactResidual

    @property
    def relative(self) -> float:
        """The bound over ‖head‖_F: 0 if exact, inf for a zero head that is not."""
        if self.bound == 0:
            return 0.0
        size = float(np.linalg.norm(self.head))
        return self.bound / size if size > 0 else float("inf")


def prove_head(weights: Matrix, statistics: RidgeStatistics, config: RidgeConfig) -> ProvenHead:
    """Return weights (d, c), rounded as above, with the bound that its residual proves.

    O(d²c) integer arithmetic. No eigenvalue of XᵀX + λI may be below `config.convexity`.
    Raises RefusedError if a weight is not finite or exceeds 2^300.
    """
    if not (np.abs(weights) < LARGEST).all():  # NaN compares false
        raise RefusedError(
            "a weight is NaN or beyond 2^300: rescale the features, or raise the penalty"
        )
    residual = ExactResidual(statistics.gram, statistics.moment, config)
    whole, low = _integers(weights, residual.base, config)
    # One product is a sixteenth of G with the places of V, of which there are about four.
    with threads_for(config.dimension**2 * config.classes // 2):
        residual.subtract_product(whole, low)
    shift = residual.base * low - np.array(config.exponents)
    head: Matrix = np.ldexp(whole, shift[:, None]) + 0.0  # no negative zeros
    rough, exponent = residual.approximate()
    bounds = column_bounds(rough, exponent, config)
    bounds[residual.zero_columns()] = 0.0
    return ProvenHead(head, norm_above(bounds.tolist()) * ROOM, residual)


def _integers(weights: Matrix, base: int, config: RidgeConfig) -> tuple[Matrix, int]:
    """Return (whole, low): V = D⁻¹W, rounded to whole·2^(base·low)."""
    steps = np.array(config.exponents, dtype=np.int64)
    used = weights.any(axis=1)
    if not used.any():
        return np.zeros_like(weights), 0
    finest = int(np.frexp(np.abs(weights).max())[1]) + int(steps[used].min()) - RESOLUTION
    # Never below what float64 can hold of a weight in the coarsest column.
    low = max(finest // base, -((1074 - int(steps.max())) // base))
    whole = np.rint(np.ldexp(weights, (steps - base * low)[:, None]))
    return np.ascontiguousarray(whole), low


# Proven ‖W - W*‖_F / ‖W‖_F above which the head is recomputed: half a float32 step, so that a
# float64 head is never further from W* than the canonical float32 head is.
TOLERANCE = 2.0**-25
# The bound grows with the square root of the updates: 4e-15, 9e-15, 5e-14 relatively after
# 0, 3, 100 deletions at n = 50,000, d = 768, λ = 1. A thousand cost it a digit and a half.
RESET_EVERY = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Tracked:
    """inverse (d, d) as in `tracked_inverse`, weights (d, c) float64 in feature units."""

    inverse: Matrix
    weights: Matrix


@dataclass(frozen=True, slots=True)
class Upkeep:
    """When to recompute inverse and head: a relative bound, a number of updates."""

    tolerance: float = TOLERANCE
    reset_every: int = RESET_EVERY

    def check_penalty(self, statistics: RidgeStatistics, config: RidgeConfig) -> None:
        """Raise PenaltyError if, now or after a removal, a reset might miss the tolerance.

        A refined float64 head is within 2^-52 of W* relatively, which moves the residual by
        that times ‖XᵀX + λI‖ <= ‖XᵀX‖_F + λ at most; removing rows only lowers it.
        """
        norm = _norm(statistics, config)
        room = self.tolerance * 2.0**51 - 1
        if config.penalty * room < norm:
            enough = max(norm / room * 1.01, sufficient_penalty(statistics.gram, config))
            raise PenaltyError(
                "this penalty is too small for a float64 head to be proven to the "
                f"tolerance: use a penalty of at least {not_below(enough)}, or the "
                "method ridge-exact"
            )
        check_penalty(statistics, config)

    def planned_reset(self, state: RidgeState) -> str:
        """Return why the next update of `state` must be a reset, or "none"."""
        if state.inverse is None or state.head.dtype != np.float64:
            return "initial"
        return "scheduled" if state.updates + 1 >= self.reset_every else "none"

    def refuse_infeasible(
        self, before: RidgeStatistics, config: RidgeConfig, error: PenaltyError
    ) -> None:
        """Raise InfeasibleRemovalError if a removal from `before` is the cause of `error`.

        A penalty that suffices for every removal of learned rows cannot fail for one.
        """
        try:
            self.check_penalty(before, config)
        except PenaltyError:
            return
        raise InfeasibleRemovalError(
            "the rows to forget were not all learned by this model: "
            "forget the very codes that were learned, each once"
        ) from error

    def settle(
        self,
        config: RidgeConfig,
        statistics: RidgeStatistics,
        tries: Callable[[], Tracked],
        reset: str,
        updates: int,
        started: float,
        rows: int,
        flops: int,
    ) -> Outcome:
        """Return the proven outcome of an update whose exact statistics are known.

        tries makes the update by recursion and is called unless `reset` says why not;
        updates counts it; rows and flops are its work. Raises PenaltyError if even a reset
        cannot be proven to the tolerance.
        """
        tracked, proven = None, None
        if reset == "none":
            tracked, proven, reset = self._try(config, statistics, tries)
        if tracked is None or proven is None:
            tracked, proven = restart(statistics, config)
            updates = 0
            flops += config.dimension**3 + 4 * config.dimension**2 * config.classes
            if proven.relative > self.tolerance:
                raise PenaltyError(
                    "a float64 head cannot be proven to the tolerance with this penalty: "
                    "use the method ridge-exact"
                )
        state = RidgeState(
            statistics, proven.head, proven.head[None], proven.bound, tracked.inverse, updates
        )
        notes = {
            "reset": reset,
            "updates_since_reset": str(updates),
            "bound": repr(proven.bound),
            "relative_bound": repr(proven.relative),
            "tolerance": repr(self.tolerance),
        }
        flops += 12 * config.dimension**2 * config.classes  # the exact residual
        work = UpdateWork(perf_counter() - started, rows, flops)
        return Outcome(state, "numerically-exact", work, MappingProxyType(notes))

    def _try(
        self,
        config: RidgeConfig,
        statistics: RidgeStatistics,
        tries: Callable[[], Tracked],
    ) -> tuple[Tracked | None, ProvenHead | None, str]:
        try:
            tracked = tries()
        except BrokenUpdateError as broken:
            return None, None, broken.reason
        # An inverse is in (0, 1]: its sum is finite unless an entry is not.
        usable = (
            np.isfinite(tracked.inverse.sum()) and (np.abs(tracked.weights) < LARGEST).all()
        )
        if not usable:
            return None, None, "tolerance"
        proven = prove_head(tracked.weights, statistics, config)
        if proven.relative > self.tolerance:
            return None, None, "tolerance"
        return tracked, proven, "none"


DEFAULT = Upkeep()


def _norm(statistics: RidgeStatistics, config: RidgeConfig) -> float:
    """Return ‖XᵀX‖_F, a panel at a time."""
    exponents, panel = np.array(config.exponents), 128
    # No entry exceeds the largest on the diagonal: squares of ratios cannot overflow.
    peak = float(np.ldexp(statistics.gram.diagonal().astype(float), 2 * exponents).max())
    if peak == 0:
        return 0.0
    squares = 0.0
    for i in range(0, len(exponents), panel):
        part = np.ldexp(statistics.gram[i : i + panel].astype(float), exponents)
        part = np.ldexp(part, exponents[i : i + panel, None])
        squares += float(np.linalg.norm(part / peak)) ** 2
    return peak * float(np.sqrt(squares))


def restart(statistics: RidgeStatistics, config: RidgeConfig) -> tuple[Tracked, ProvenHead]:
    """Return inverse and head from the statistics alone, by Variant A: O(d³).

    One step of refinement with the exact residual makes the head as good as float64 can.
    Raises PenaltyError if rounding leaves the system indefinite.
    """
    with threads_for(config.dimension**3 // 3):
        return _restart(statistics, config)


def _restart(statistics: RidgeStatistics, config: RidgeConfig) -> tuple[Tracked, ProvenHead]:
    system = factorise(statistics, config)
    to_weights = (system.scales - np.array(config.exponents))[:, None]

    def solve(right: Matrix) -> Matrix:
        scaled = system.solve(np.ldexp(right, system.scales[:, None]))
        return np.asarray(np.ldexp(scaled, to_weights))

    proven = prove_head(solve(statistics.moment.astype(np.float64)), statistics, config)
    if proven.bound > 0:
        rough, exponent = proven.residual.approximate()
        step = np.ldexp(solve(rough), exponent)
        refined = prove_head(proven.head + step, statistics, config)
        proven = min(proven, refined, key=lambda candidate: candidate.bound)
    return Tracked(invert(system, config), proven.head), proven
