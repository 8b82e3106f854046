"""Newton's method on the objective of the retained clients, down to what float32 can resolve.

Every step solves ∇²L Δ = -∇L by conjugate gradients on the clients' products, and is halved
until ‖∇L‖ falls enough: ‖∇L(θ + tΔ)‖ <= (1 - t/10)‖∇L(θ)‖. Since the derivative of ‖∇L‖²
along Δ is -2‖∇L‖², such a t exists from any θ; near the optimum it is 1. The first step from
a model that was at the optimum of all rows is the removal of Guo et al. 2020 and HF-KCU's
corrected step; the later steps remove its remaining error.
"""

from dataclasses import dataclass, replace

from workers.methods.certified.objective import Gradient, measure
from workers.methods.certified.softmax import newton_residual
from workers.methods.network.base import Side
from workers.methods.network.hf_kcu.conjugate_gradients import solve
from workers.methods.network.hf_kcu.products import Asking, Panel
from workers.training.networks.weights import Weights, from_vector, moved

DECREASE = 0.1
HALVINGS = 20
ENOUGH = 1 / 16  # of the rounding margin: a smaller gradient is lost in it


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
