"""A trained attacker after Shokri, Stronati, Song and Shmatikov (S&P 2017).

Theirs learns from shadow models. Here, as in the unlearning papers, it learns from the attacked
model itself, on known members and known non-members, and is then applied to rows in neither
group. Features are the three largest probabilities in order (Salem et al., NDSS 2019, attack 1:
more add nothing), the loss, the log-odds and the modified entropy. The attacker is a logistic
regression with equal weights of both sides, fitted by Newton's method to a unique minimum: no
seed and no step size.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import expit

from workers.arrays import Matrix
from workers.errors import RefusedError
from workers.judge.attacks.attack import Scores, Setting
from workers.judge.attacks.outputs import Outputs, log_odds, log_softmax, losses, right
from workers.judge.attacks.song import modified_entropy
from workers.judge.inference.intervals import Flags, Vector

LARGEST_LOSS = 50.0  # nats; beyond it p_y is below 2e-22 and outliers would dominate the fit
TOP = 3
PENALTY = 1e-3  # of the mean log-loss: separable sides get finite weights
ITERATIONS = 100
CLOSE = 1e-10


def shokri(setting: Setting) -> Scores:
    """Score by the attacker's log-odds of membership; the threshold is 0."""
    score = attacker(setting.members, setting.others)
    return Scores(score(setting.forget), score(setting.unseen), 0.0)


def attacker(members: Outputs, others: Outputs) -> Callable[[Outputs], Vector]:
    """Return a function to log-odds (n,) that rows are members, fitted on known ones.

    Raises RefusedError if a side is empty.
    """
    sides = [features(members), features(others)]
    known = np.concatenate(sides)
    belongs = np.arange(len(known)) < len(sides[0])
    centre, spread = known.mean(axis=0), known.std(axis=0)
    spread[spread < 1e-12] = 1.0
    weights = fit_logistic((known - centre) / spread, belongs)

    def score(of: Outputs) -> Vector:
        found: Vector = (features(of) - centre) / spread @ weights[1:] + weights[0]
        return found

    return score


def features(of: Outputs) -> Matrix:
    """Return the attacker's features of each row: (n, 5 + min(3, c)), all bounded."""
    top = -np.sort(-np.exp(log_softmax(of.logits)), axis=1)[:, :TOP]
    return np.column_stack(
        [
            top,
            np.minimum(losses(of), LARGEST_LOSS),
            np.clip(log_odds(of), -LARGEST_LOSS, LARGEST_LOSS),
            np.minimum(modified_entropy(of), LARGEST_LOSS),
            right(of),
        ]
    )


def fit_logistic(rows: Matrix, belongs: Flags) -> Vector:
    """Return intercept and weights (1 + d,) that minimise the penalised mean log-loss.

    rows (n, d), belongs (n,); both sides have weight 1/2. The intercept is not penalised.
    Raises RefusedError if a side is empty.
    """
    share = float(belongs.mean())
    if not 0 < share < 1:
        raise RefusedError("an attacker needs known members and known non-members")
    design = np.column_stack([np.ones(len(rows)), rows])
    importance = np.where(belongs, 0.5 / share, 0.5 / (1 - share)) / len(rows)
    penalty = np.full(design.shape[1], PENALTY)
    penalty[0] = 0.0
    sign = np.where(belongs, 1.0, -1.0)
    weights = np.zeros(design.shape[1])

    def objective(at: Vector) -> float:
        logs = np.logaddexp(0.0, -sign * (design @ at))
        return float(importance @ logs + (penalty * at) @ at / 2)

    for _ in range(ITERATIONS):
        chance = expit(design @ weights)
        gradient = design.T @ (importance * (chance - belongs)) + penalty * weights
        if np.abs(gradient).max() < CLOSE:
            break
        bend = importance * chance * (1 - chance)
        hessian = (design * bend[:, None]).T @ design + np.diag(penalty)
        hessian[0, 0] += 1e-12
        step = np.linalg.solve(hessian, gradient)
        rate, start, slope = 1.0, objective(weights), float(gradient @ step)
        while objective(weights - rate * step) > start - 1e-4 * rate * slope and rate > 1e-6:
            rate /= 2
        weights = weights - rate * step
    return weights
