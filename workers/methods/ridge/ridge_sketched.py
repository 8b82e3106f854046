"""Sketched messages: head and inverse follow Gram updates of low rank, under a drift budget.

Source: "Exact Federated Continual Unlearning for Ridge Heads on Frozen Foundation Models",
appendix A2: low-rank or sketched Gram updates (A2.1) and periodic exact resets (A2.2). The
exact statistics are kept beside as the ledger (G_t, C_t). They take no part in an update,
but judge it: with G̃ for the sum of sketches, the head W is a float64 solution of
(G̃ + λI)W = C, and what is claimed of it is

    ‖W - W*‖_F <= ‖(G + λI)W - C‖_F / λ + (α/λ)·‖W‖_F,

the gradient at W of an objective that is 2λ-strongly convex, over its modulus: the first term
is evaluated on the exact statistics (`proven_head`); α is what clients attest for rows of
which they sent only sketches. Since G_rows = G + F with ‖F‖₂ <= α and G_rows ⪰ 0, the
residual (G_rows + λI)W - C is that of G plus FW, and no eigenvalue of G_rows + λI is below λ.

The bounds of the theorem, which are known before anything is solved, go into the notes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf, nextafter
from time import perf_counter
from types import MappingProxyType

import numpy as np

from workers.arrays import IntMatrix, Matrix
from workers.blas_threads import threads_for
from workers.errors import PenaltyError, RefusedError
from workers.methods.ridge.base import (
    Outcome,
    RidgeConfig,
    RidgeState,
    UpdateWork,
    bind,
    check_shape,
)
from workers.methods.ridge.sketch_batch import Delta, delta_of, deltas_of, without
from workers.methods.ridge.sketch_bounds import (
    least_eigenvalue,
    moment_norm,
    norm_above,
    prior_bound,
    resolvent_bound,
)
from workers.methods.ridge.sketches.kinds import known, sketch
from workers.methods.ridge.sketches.sketch import Sketch, expand
from workers.methods.ridge.statistics.gram import RidgeStatistics, merge
from workers.methods.ridge.statistics.message import Batch, sum_above
from workers.methods.ridge.tracked_inverse import (
    BrokenUpdateError,
    penalty_exponent,
    product,
    rank_update,
)
from workers.methods.ridge.upkeep import (
    LARGEST,
    ROOM,
    ProvenHead,
    Tracked,
    Upkeep,
    prove_head,
    restart,
)

# Proven ‖W - W*‖_F / ‖W‖_F above which everything is recomputed: the effect of rounding a
# head's entries to 8 significant bits, as deployed heads often are.
TOLERANCE = 2.0**-7
RESET_EVERY = 1000  # as for the other tracked inverses
# A factor of d/4 rows of int32 is a quarter of G's upper triangle in int64. Beyond 64 rows, a
# client's usual batch, more columns add nothing to a batch's spectrum.
LARGEST_RANK, COLUMNS_A_ROW = 64, 4
# A residual below this share of λ moves a head by no more than this share of itself: a
# thousand of them stay well within the budget, so that no sharper bound is worth O(d³).
NEGLIGIBLE = 2.0**-20


@dataclass(frozen=True, slots=True, eq=False)
class _Update:
    """One update: the exact statistics after it, the change, and what is attested after it."""

    config: RidgeConfig
    ledger: RidgeStatistics
    delta: Delta
    sign: int
    attested: float


@dataclass(frozen=True, slots=True, eq=False)
class _Followed:
    """The followed update: least is μ with G̃ + λI ⪰ μI, guaranteed; gram is G̃."""

    inverse: Matrix
    proven: ProvenHead
    bound: float
    gram: IntMatrix
    drift: float
    least: float


@dataclass(frozen=True, slots=True)
class RidgeSketched:
    """A float64 head that follows sketches of rank `rank` (None: min(64, d/4)).

    kind: one of `sketches.kinds.known()`; seed: of its random directions, if any;
    tolerance: the registered budget, relative to the head's norm. Raises RefusedError for
    options out of range.
    """

    kind: str = "eigen"
    rank: int | None = None
    seed: int = 0
    tolerance: float = TOLERANCE
    reset_every: int = RESET_EVERY
    id: str = field(default="ridge-sketched", init=False)
    version: str = field(default="1", init=False)

    def __post_init__(self) -> None:
        if self.kind not in known():
            raise RefusedError(f"unknown sketch: choose one of {', '.join(known())}")
        if (self.rank is not None and self.rank < 1) or self.seed < 0:
            raise RefusedError("rank must be at least 1, and seed 0 or more")
        if not 2.0**-25 <= self.tolerance < 1 or self.reset_every < 1:
            raise RefusedError(
                "tolerance must be at least 2^-25 and below 1, and reset_every 1 or more"
            )

    def check_penalty(self, config: RidgeConfig, statistics: RidgeStatistics) -> None:
        """Raise PenaltyError as `Upkeep.check_penalty`."""
        self._upkeep.check_penalty(statistics, config)

    def learn(self, config: RidgeConfig, state: RidgeState | None, batch: Batch) -> Outcome:
        """Return the state that knows this batch too (`state` None: this batch alone).

        Raises PenaltyError if after some later removal a reset could not be proven to the
        tolerance, ExactnessError for too many rows, RefusedError for another shape, or if
        what is attested of the rows would exceed the tolerance by itself.
        """
        started = perf_counter()
        if state is not None:
            check_shape(config, state, attested_too=True)
        delta = delta_of(batch, config)
        if state is None:
            return self._from_nothing(config, delta, started)
        ledger = merge(state.statistics, delta.statistics, bits=config.bits)
        self._upkeep.check_penalty(ledger, config)
        return self._update(config, state, ledger, delta, +1, started)

    def forget(self, config: RidgeConfig, state: RidgeState, batch: Batch) -> Outcome:
        """Return the state without this batch, its head within the bound of retraining's.

        Raises InfeasibleRemovalError if no rows with this batch could have been learned or
        G + λI would not stay positive definite, else as `learn`.
        """
        started = perf_counter()
        check_shape(config, state, attested_too=True)
        delta = delta_of(batch, config)
        attested = sum_above(state.attested, delta.attested)
        ledger = without(state.statistics, delta, attested, config)
        try:
            return self._update(config, state, ledger, delta, -1, started)
        except PenaltyError as error:
            self._upkeep.refuse_infeasible(state.statistics, config, error)
            raise

    def refit(self, config: RidgeConfig, blocks: Iterable[Batch]) -> Outcome:
        """Return the state of training from scratch on all of `blocks`: an exact reset."""
        started = perf_counter()
        return self._from_nothing(config, deltas_of(blocks, config), started)

    @property
    def _upkeep(self) -> Upkeep:
        return Upkeep(self.tolerance, self.reset_every)

    def rank_for(self, dimension: int) -> int:
        """Return the rank of the sketches of a model with that many columns."""
        if self.rank is not None:
            return min(self.rank, dimension)
        return min(LARGEST_RANK, max(1, dimension // COLUMNS_A_ROW))

    def _from_nothing(self, config: RidgeConfig, delta: Delta, started: float) -> Outcome:
        self._upkeep.check_penalty(delta.statistics, config)
        begun = _Update(config, delta.statistics, delta, +1, delta.attested)
        return self._settle(begun, None, "initial", 0.0, 0, started)

    def _update(
        self,
        config: RidgeConfig,
        state: RidgeState,
        ledger: RidgeStatistics,
        delta: Delta,
        sign: int,
        started: float,
    ) -> Outcome:
        attested = sum_above(state.attested, delta.attested)
        update = _Update(config, ledger, delta, sign, attested)
        followed, residual, reset = None, 0.0, self._upkeep.planned_reset(state)
        if reset == "none":
            small = sketch(
                delta.statistics.gram,
                self.rank_for(config.dimension),
                self.kind,
                codes=delta.codes,
                exponents=config.exponents,
                seed=self.seed,
                enough=NEGLIGIBLE * config.penalty,
            )
            residual = small.residual
            followed, reset = self._follow(update, state, small)
        return self._settle(update, followed, reset, residual, state.updates + 1, started)

    def _follow(
        self, update: _Update, state: RidgeState, small: Sketch
    ) -> tuple[_Followed | None, str]:
        """Return the result of following the sketch, or the reason for a reset."""
        config, drift = update.config, sum_above(state.drift, small.residual)
        before, after = state.drift + state.attested, drift + update.attested
        least = least_eigenvalue(update.sign, before, after, config.penalty, config.exponents)
        if least <= 0:
            return None, "drift"
        assert state.inverse is not None
        tracked = Tracked(state.inverse, np.asarray(state.head, dtype=np.float64))
        try:
            tracked = follow(
                config, tracked, small, update.delta.statistics.moment, update.sign
            )
        except BrokenUpdateError as broken:
            return None, broken.reason
        usable = np.isfinite(tracked.inverse.sum()) and (abs(tracked.weights) < LARGEST).all()
        if not usable:
            return None, "tolerance"
        proven = prove_head(tracked.weights, update.ledger, config)
        bound = _widened(proven, update)
        if not bound <= self.tolerance * float(np.linalg.norm(proven.head)):
            return None, "tolerance"
        sketched = state.statistics if state.sketched is None else state.sketched
        gram = sketched.gram + update.sign * expand(small.factor, small.shift)
        return _Followed(tracked.inverse, proven, bound, gram, drift, least), "none"

    def _settle(
        self,
        update: _Update,
        followed: _Followed | None,
        reset: str,
        residual: float,
        updates: int,
        started: float,
    ) -> Outcome:
        """Return the outcome of the followed update or, without one, of an exact reset."""
        config, ledger = update.config, update.ledger
        d, c, k = config.dimension, config.classes, update.delta.statistics.rows
        rank = self.rank_for(d)
        flops = k * d * (d + 1) + 4 * rank * d * (d + c) + 14 * d * d * c
        if followed is None:
            followed, updates = self._reset(update), 0
            flops += d**3 + 4 * d * d * c
        proven, drift = followed.proven, followed.drift
        state = RidgeState(
            ledger,
            proven.head,
            proven.head[None],
            followed.bound,
            followed.inverse,
            updates,
            RidgeStatistics(followed.gram, ledger.moment, ledger.rows),
            drift,
            update.attested,
        )
        total, norm = sum_above(drift, update.attested), norm_above(proven.head)
        prior = prior_bound(
            total, config.penalty, followed.least, moment_norm(ledger.moment, config.exponents)
        )
        notes = {
            "reset": reset,
            "updates_since_reset": str(updates),
            "sketch": self.kind,
            "rank": str(rank),
            "seed": str(self.seed),
            "residual": repr(residual),
            "drift": repr(drift),
            "attested": repr(update.attested),
            "bound": repr(followed.bound),
            "relative_bound": repr(followed.bound / norm if norm else 0.0),
            "bound.resolvent": repr(resolvent_bound(total, config.penalty, norm)),
            f"bound.{'add' if update.sign > 0 else 'delete'}": repr(prior),
            "tolerance": repr(self.tolerance),
        }
        work = UpdateWork(perf_counter() - started, k, flops)
        return Outcome(state, "certified-approximate", work, MappingProxyType(notes))

    def _reset(self, update: _Update) -> _Followed:
        """Return the head of the exact statistics, by Variant A; what is attested stays."""
        config, attested = update.config, update.attested
        least = nextafter(config.penalty - attested, -inf)
        if attested > self.tolerance * config.penalty:
            raise RefusedError(
                "the sketches neglect too much of these rows for the registered tolerance: "
                "send sketches of a higher rank, or the statistics themselves"
            )
        tracked, proven = restart(update.ledger, config)
        bound = _widened(proven, update)
        if not bound <= self.tolerance * float(np.linalg.norm(proven.head)):
            raise PenaltyError(
                "a float64 head cannot be proven to the tolerance with this penalty: "
                "use the method ridge-exact"
            )
        return _Followed(tracked.inverse, proven, bound, update.ledger.gram, 0.0, least)


METHOD = bind("ridge-sketched", RidgeSketched())


def configured(options: Mapping[str, object]) -> RidgeSketched:
    """Return the method with registered options: kind, rank, seed, tolerance, reset_every.

    Raises RefusedError for an unknown option, or a value of another type or range.
    """
    types: dict[str, tuple[type, ...]] = {
        "kind": (str,),
        "rank": (int,),
        "seed": (int,),
        "tolerance": (float,),
        "reset_every": (int,),
    }
    if not options.keys() <= types.keys():
        raise RefusedError(f"unknown option of a sketch: choose from {', '.join(types)}")
    if any(type(value) not in types[name] for name, value in options.items()):
        raise RefusedError(
            "options of a sketch: kind is a text, tolerance a number with a point, "
            "and rank, seed and reset_every are whole numbers"
        )
    return RidgeSketched(**options)  # type: ignore[arg-type]  # types are checked above


def follow(
    config: RidgeConfig, before: Tracked, small: Sketch, moment: IntMatrix, sign: int
) -> Tracked:
    """Return inverse and weights after adding (+1) or deleting (-1) ΔĜ = UUᵀ and ΔC.

    Variant B's update with a sketch of rank r in place of the batch: section 5, equations (7)
    to (10), with appendix A2.1's factor of ΔG for U. Equations (8) and (10): W' = W ± P'(ΔC -
    ΔĜ·W), O(rd² + d²c). Raises BrokenUpdateError.
    """
    scale, steps = penalty_exponent(config), np.array(config.exponents)
    roots: Matrix = np.ldexp(small.factor.astype(np.float64), steps - small.shift - scale)
    change: Matrix = np.ldexp(moment.astype(np.float64), (steps - scale)[:, None])
    weights = np.ldexp(before.weights, scale)
    with threads_for(2 * max(1, small.rank) * config.dimension**2):
        if not small.rank:
            step, inverse = product(before.inverse, change), before.inverse
        else:
            update = rank_update(before.inverse, roots, sign)
            step, inverse = product(update.inverse, change), update.inverse
            step = step - product(update.gain, product(roots, weights))
    return Tracked(inverse, np.ldexp(weights + sign * step, -scale))


def _widened(proven: ProvenHead, update: _Update) -> float:
    """Return the bound on the distance to the rows' W*, attested α included."""
    if update.attested == 0:
        return proven.bound
    unseen = update.attested / update.config.penalty * norm_above(proven.head) * ROOM
    return sum_above(proven.bound, unseen)
