"""certified-newton: a logistic head at the retained rows' optimum, plus Gaussian noise.

Source: Guo, Goldstein, Hannun and van der Maaten, "Certified data removal from machine
learning models", ICML 2020, for the gradient residual as the measure of what is left; Neel,
Roth and Sharifi-Malvajerdi, ALT 2021, and Sekhari et al., NeurIPS 2021, for noise on the
result. With θ* the optimum of the retained rows,

    ‖θ̂ - θ*‖ <= ‖∇L(θ̂)‖ / λ =: r,      θ = θ̂ + N(0, σ²I)

and θ is (ε, δ)-indistinguishable from θ* + N(0, σ²I), a model that never saw the erased rows,
if r is within what the noise hides (`budget`). The iteration starts at the model with the
erased rows, but the bound holds for any start, given everything published before. The noise
is drawn after r is known and does not depend on it: why that matters, and why the noise is
not in the objective as in the paper, is in docs/adr/0019.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import frexp, ldexp
from time import perf_counter
from typing import ClassVar

from workers.errors import RefusedError
from workers.methods.certified.budget import Budget
from workers.methods.certified.noise import commitment, context_of, new_key
from workers.methods.certified.objective import Gradient, measure, penalty_of
from workers.methods.certified.release import Release, noisy
from workers.methods.certified.softmax import newton_residual
from workers.methods.network.base import (
    Hooks,
    Need,
    Side,
    Tick,
    Unlearned,
    UnlearningCase,
    method,
)
from workers.methods.network.hf_kcu.conjugate_gradients import solve
from workers.methods.network.hf_kcu.products import Asking, Panel
from workers.methods.network.recovery import pin_of
from workers.training.fedavg.device import facts_of
from workers.training.fedavg.seeds import derive
from workers.training.networks.weights import Weights, difference, from_vector, moved, norm

TOLERANCE = 2.0**-7  # relative to ‖θ‖: the effect of rounding to 8 significant bits
# Of the Newton iteration, see `minimise`.
DECREASE = 0.1
HALVINGS = 20
ENOUGH = 1 / 16  # of the rounding margin: a smaller gradient is lost in it


class LooseBoundError(RefusedError):
    """The optimum was not reached closely enough for the registered tolerance."""


@method("certified-newton")
@dataclass(frozen=True, slots=True)
class CertifiedNewton:
    """steps: the most Newton steps; iterations: the most products in each.

    tolerance: the registered bound of ‖θ - θ*‖ / ‖θ‖. row_norm: the largest ‖(1, x)‖ of a
    registered row; it enters the margin for float32 and the predicted residual. sigma: the
    standard deviation of each weight's noise, 0 for none and no (ε, δ); releases: the number
    of models hidden together between two trainings; before: how many of these exist already;
    ordinal: the number of versions in the model's whole life, so that no two releases share
    their noise. Raises RefusedError for a value out of range.
    """

    id: ClassVar[str] = "certified-newton"
    version: ClassVar[str] = "1"
    needs: ClassVar[frozenset[Need]] = frozenset()
    steps: int = 20
    iterations: int = 200
    tolerance: float = TOLERANCE
    row_norm: float = 8.0
    sigma: float = 0.0
    epsilon: float = 1.0
    delta: float = 1e-5
    releases: int = 16
    before: int = 0
    ordinal: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "iterations"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= 10_000:
                raise RefusedError(f"{name}: must be an integer from 1 to 10000")
        if not 0 < self.tolerance < 1:
            raise RefusedError("tolerance: must lie between 0 and 1")
        if not 1 <= self.row_norm <= 1e6:
            raise RefusedError("row_norm: must be at least 1, the bias's share of (1, x)")
        for name in ("before", "ordinal"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise RefusedError(f"{name}: must be an integer, 0 or more")
        if self.sigma != 0:
            _ = self.budget

    @property
    def budget(self) -> Budget:
        """The registered noise budget. Raises RefusedError without noise."""
        return Budget(self.sigma, self.epsilon, self.delta, self.releases)

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the model to publish. `save` gets the bytes of the `Release`: a secret.

        Raises NotConvexError, NobodyAnsweredError, BudgetSpentError, LooseResidualError,
        LooseBoundError, BreakdownError, CheckpointError for a foreign `resume`; the model is
        then unchanged.
        """
        release = self.released(case, new_key() if self.sigma else None, hooks)
        return Unlearned(release.weights, release.work, "certified-approximate", release.notes)

    def released(
        self, case: UnlearningCase, key: bytes | None, hooks: Hooks | None = None
    ) -> Release:
        """Return the release, saved before it is reported. Raises as `run`."""
        hooks = hooks or Hooks()
        pin = pin_of(case, f"{self.id}/{self.version} {self!r}")
        if hooks.resume is not None:
            # Never draw twice: the mean of two releases of one centre would have less noise.
            release = Release.decode(hooks.resume, case.network, pin)
        else:
            release = self.release(case, key)
            if hooks.save is not None:
                hooks.save(release.encode(pin))
        if hooks.tell is not None:
            hooks.tell(Tick("step", 1, 1))
        return release

    def release(self, case: UnlearningCase, key: bytes | None) -> Release:
        """Return the model to publish and its secrets; key: 32 bytes iff sigma > 0.

        A key may serve several releases if nobody could know it before the first request: log
        its commitment before that. Raises as `run`, and RefusedError for a missing or
        unexpected key.
        """
        started = perf_counter()
        penalty = penalty_of(case)
        self.check(case, key)
        asking = Asking(
            case.network,
            case.weights,
            case.config.local,
            derive(case.config.seed, self.id, case.config.rounds),
            case.config.timeout,
        )
        reached = minimise(
            asking,
            case.retained,
            penalty,
            self.row_norm,
            steps=self.steps,
            iterations=self.iterations,
        )
        notes = _notes(reached, penalty, reached.gradient.distance(penalty))
        made = self.around(case, asking, reached.weights, reached.gradient, key, notes)
        return replace(made, work=replace(made.work, seconds=perf_counter() - started))

    def check(self, case: UnlearningCase, key: bytes | None) -> None:
        """Check that a release is possible, before clients do any work.

        Raises BudgetSpentError, RefusedError for a missing or unexpected key, or missing
        data.
        """
        if (key is None) != (self.sigma == 0):
            raise RefusedError("give a noise key if sigma is above 0, and none otherwise")
        if key is not None and not case.data:
            raise RefusedError(
                "data: give the digest of the rows that stay, for which the noise is drawn"
            )
        if key is not None:
            self.budget.spend(self.before, 0.0)

    def around(
        self,
        case: UnlearningCase,
        asking: Asking,
        centre: Weights,
        gradient: Gradient,
        key: bytes | None,
        notes: Mapping[str, str],
    ) -> Release:
        """Return the release of any centre, `gradient` measured there.

        notes describe the rows and are dropped if there is noise. Raises LooseBoundError,
        LooseResidualError, BudgetSpentError.
        """
        penalty = penalty_of(case)
        residual = gradient.distance(penalty)
        weights, bound = centre, residual
        if key is not None:
            self.budget.spend(self.before, residual)
            context = context_of(case.data, self.ordinal)
            weights = noisy(case.network, centre, key, context, self.sigma)
            bound = self._bound_across(case, asking, centre, weights, residual)
            notes = _noise_notes(self, penalty, bound, commitment(key))
        length = norm(weights)
        if not bound <= self.tolerance * length:
            raise LooseBoundError(
                f"the model is within {bound:.3g} of the optimum, and its tolerance is "
                f"{self.tolerance * length:.3g}: allow more steps, train with more weight "
                "decay or less noise, or use retrain"
            )
        return Release(
            weights=weights,
            centre=centre,
            key=key,
            residual=residual,
            bound=bound,
            work=asking.work,
            notes={**facts_of(case.retained.engine, case.config.local), **notes},
        )

    def _bound_across(
        self,
        case: UnlearningCase,
        asking: Asking,
        centre: Weights,
        weights: Weights,
        residual: float,
    ) -> float:
        """Return the bound of the noisy weights: a power of two, as it is published."""
        penalty = penalty_of(case)
        asking.weights = weights
        there = measure(asking, case.retained, penalty, self.row_norm).distance(penalty)
        across = norm(difference(weights, centre)) + residual
        return power_above(min(there, across * (1 + 2.0**-20)))


@dataclass(frozen=True, slots=True, eq=False)
class Reached:
    """The end of the iteration: the weights, the gradient there, and the work.

    predicted: the bound on ‖∇L‖ after the first step, known before asking clients, None
    without a step; after: the measured value.
    """

    weights: Weights
    gradient: Gradient
    steps: int
    products: int
    predicted: float | None = None
    after: float | None = None


def minimise(
    asking: Asking,
    side: Side,
    penalty: float,
    row_norm: float,
    *,
    steps: int,
    iterations: int,
) -> Reached:
    """Return the result of at most `steps` Newton steps from asking.weights.

    Every step solves ∇²L Δ = -∇L by conjugate gradients on the clients' products, and is halved
    until ‖∇L‖ falls enough: ‖∇L(θ + tΔ)‖ <= (1 - t/10)‖∇L(θ)‖. Since the derivative of ‖∇L‖²
    along Δ is -2‖∇L‖², such a t exists from any θ; near the optimum it is 1. The first step
    from a model that was at the optimum of all rows is the removal of Guo et al. 2020 and
    HF-KCU's corrected step; the later steps remove its remaining error.

    Ends early when the gradient is lost in rounding or no step shortens it. Afterwards,
    asking.weights are the last weights evaluated. Raises NobodyAnsweredError if a client is
    missing, BreakdownError for products that are not finite.
    """
    found = Reached(asking.weights, measure(asking, side, penalty, row_norm), 0, 0)
    while found.steps < steps and found.gradient.norm > ENOUGH * found.gradient.rounding:
        asking.weights = found.weights
        panel = Panel(
            asking, side, sorted(side.rows), "gauss-newton", penalty, sum(side.rows.values())
        )
        # The error of an inexact step shrinks with the gradient: convergence stays quadratic.
        tolerance = min(1e-2, max(1e-6, found.gradient.norm / penalty))
        solution = solve(
            panel.times, -found.gradient.vector, iterations=iterations, tolerance=tolerance
        )
        found = replace(found, products=found.products + solution.report.products)
        direction = from_vector(solution.x, asking.network)
        share, old = 1.0, found.gradient
        for _ in range(HALVINGS):
            asking.weights = moved(found.weights, direction, share)
            new = measure(asking, side, penalty, row_norm)
            if new.norm <= (1 - DECREASE * share) * old.norm:
                break
            share /= 2
        else:
            break
        if found.steps == 0:
            length, left = float(solution.x.norm()), solution.report.residual * old.norm
            bound = newton_residual(row_norm, old.norm, length, left, share)
            found = replace(found, predicted=bound, after=new.norm)
        found = replace(found, weights=asking.weights, gradient=new, steps=found.steps + 1)
    return found


def power_above(number: float) -> float:
    """Return the least power of two above a number > 0."""
    return ldexp(1.0, frexp(number)[1])


def _notes(reached: Reached, penalty: float, residual: float) -> dict[str, str]:
    length = norm(reached.weights)
    found = {
        "certified.penalty": repr(penalty),
        "certified.steps": str(reached.steps),
        "certified.products": str(reached.products),
        "certified.gradient": repr(reached.gradient.norm),
        "certified.rounding": repr(reached.gradient.rounding),
        "certified.bound": repr(residual),
        "certified.relative": repr(residual / length if length else 0.0),
    }
    if reached.predicted is not None:
        found["certified.first-step-predicted"] = repr(reached.predicted)
        found["certified.first-step-gradient"] = repr(reached.after)
    return found


def _noise_notes(
    method: CertifiedNewton, penalty: float, bound: float, committed: str
) -> dict[str, str]:
    """Return the notes of noisy weights: none is a function of the rows alone."""
    budget = method.budget
    return {
        "certified.penalty": repr(penalty),
        "certified.bound": repr(bound),
        "noise.sigma": repr(float(budget.sigma)),
        "noise.epsilon": repr(float(budget.epsilon)),
        "noise.delta": repr(float(budget.delta)),
        "noise.release": f"{method.before + 1} of {budget.releases}",
        "noise.allowance": repr(budget.allowance),
        "noise.commitment": committed,
    }
