"""Matched pairs of a judgement by samples: how many there can be, and how many it takes.

A pair is an erased record that was trained on and a held-out record of the same client and
label. The judge draws the pairs (`workers.judge.samples.samples`); these bounds need no row.
"""

from collections.abc import Iterable
from math import ceil, pi, sqrt
from statistics import NormalDist

RESERVED = 5  # one in this many pool rows is never a partner: attacks are calibrated on it


def most_pairs(clients: Iterable[tuple[int, int]], pool: int, others: int) -> int:
    """Return a number of pairs that no draw exceeds.

    clients: of each client concerned, how many of its erased records were trained on, and how
    many of its records, erased or not, are held out. pool: of all clients, the held-out
    records, or more. others: how many of the pool must not be partners.

    An upper bound: a partner belongs to one pair, and to the client of its erased record. The
    labels are not known here, and which clients the reserved part of the pool is drawn from
    depends on the seed: both only lower the number. So does every record that is not held out
    and is counted in `pool`.
    """
    partners = pool - max(pool // RESERVED, others)
    return max(0, min(sum(min(trained, held) for trained, held in clients), partners))


def least_pairs(tau: float, level: float, power: float) -> int:
    """Return the number of pairs below which no judgement has this power for the AUC.

    That is the chance of showing |AUC - 1/2| <= tau at `level` if the AUC is exactly 1/2, by
    the normal law with Mann and Whitney's null variance (2m + 1)/12m² for m pairs, as in
    `workers.judge.inference.sizes.auc_power`.
    """
    quantile = NormalDist().inv_cdf
    root = ((quantile((1 + power) / 2) - quantile(level / 2)) / tau) ** 2
    least = (root + sqrt(root * (root + 12))) / 12  # where 12m²/(2m + 1) is the root
    return ceil(least * (1 - 1e-9))  # a rounding error must not ask for one pair more


def share_of_alpha(alpha: float, judged: int) -> float:
    """Return the part of a model's alpha for the judgement after `judged` earlier ones.

    Requests arrive without a known end, so the k-th may spend alpha·6/(π²k²): the sum over all
    k is alpha (Σ 1/k² = π²/6, Basel).
    """
    return alpha * 6 / (pi * (judged + 1)) ** 2
