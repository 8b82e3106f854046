"""The objective of a logistic head, and its gradient from the retained clients' answers.

    L(θ) = (1/n) Σ_i ℓ(θ; x_i, y_i) + (λ/2)‖θ‖²

over all n retained rows, ℓ the cross-entropy of Wx + b, θ all weights, the bias among them,
and λ the weight decay of the training. L is λ-strongly convex, so for every θ, however it was
found, ‖θ - θ*‖ <= ‖∇L(θ)‖ / λ.
"""

from dataclasses import dataclass
from math import sqrt

import torch

from workers.errors import RefusedError
from workers.methods.certified.softmax import CURVATURE, SLOPE
from workers.methods.network.base import Side, UnlearningCase
from workers.methods.network.hf_kcu.products import Asking, NobodyAnsweredError
from workers.training.fedavg.server import weighted_mean
from workers.training.networks.weights import norm, to_vector

FLOAT32 = 2.0**-24  # unit roundoff of what clients compute


class NotConvexError(RefusedError):
    """The model's objective is not proven to be strongly convex."""


def penalty_of(case: UnlearningCase) -> float:
    """Return λ > 0. Raises NotConvexError if L has another form."""
    local = case.config.local
    if case.network.id != "logistic" or local.loss != "cross-entropy":
        raise NotConvexError(
            "only a logistic head with cross-entropy has a certificate: use retrain"
        )
    if local.optimizer == "adamw" or local.weight_decay == 0:
        raise NotConvexError(
            "without a weight decay in the loss the objective is not strongly convex: train "
            "with weight_decay and the optimizer sgd or adam, or use retrain"
        )
    return local.weight_decay


@dataclass(frozen=True, slots=True, eq=False)
class Gradient:
    """∇L as measured, (d,) float64, and how far float32 may have moved its norm."""

    vector: torch.Tensor
    rounding: float

    @property
    def norm(self) -> float:
        """The Euclidean norm."""
        return float(self.vector.norm())

    def distance(self, penalty: float) -> float:
        """Return the claimed bound on ‖θ - θ*‖."""
        return (self.norm + self.rounding) / penalty * (1 + 2.0**-40)


def measure(asking: Asking, side: Side, penalty: float, row_norm: float) -> Gradient:
    """Return ∇L at asking.weights over all rows of `side`.

    Raises NobodyAnsweredError unless every client answers usably: a sum without one of them
    is the gradient of another objective.
    """
    answers = asking.gradients(side)
    if len(answers) < len(side.rows):
        missing = len(side.rows) - len(answers)
        raise NobodyAnsweredError(
            f"{missing} of {len(side.rows)} clients who stay did not answer usably, and a "
            "certificate needs all of them: ask again when they are back, or use retrain"
        )
    found = to_vector(weighted_mean(answers)) + penalty * to_vector(asking.weights).double()
    return Gradient(found, rounding_of(asking, sum(side.rows.values()), row_norm))


def rounding_of(asking: Asking, rows: int, row_norm: float) -> float:
    """Return the expected error of ‖∇L‖ over `rows` rows from float32 at the clients.

    Sums of k terms are assumed to lose √k·u rather than k·u (Higham and Mary 2019), and rows
    to err independently, except for two units that do not average out. This is a margin, not
    a proof: the verifier computes in float64 with a strict bound. If rows repeat, the margin
    may be too small; a correct model is then refuted, but a false one never passes.
    """
    features, classes = asking.network.parameters["features"], asking.network.classes
    logits = CURVATURE * sqrt(features + 2) * norm(asking.weights) * row_norm
    sums = SLOPE * (sqrt(asking.config.batch_size) + 2)
    return FLOAT32 * row_norm * (2 + (logits + sqrt(classes) + 8 + sums) / sqrt(rows))
