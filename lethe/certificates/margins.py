"""KLoM: the distance between the margins of unlearned and of retrained models.

Georgiev et al., "Attribute-to-Delete: Machine Unlearning via Datamodel Matching" (ICLR 2025,
arXiv 2410.23232). A margin is the log-odds log p / (1 - p) of the correct class. For one input,
the margins of n unlearned and of n retrained models make two histograms, and KLoM is
KL(unlearned ‖ retrained) in nats. As in the authors' code: 20 bins of equal width from the
least to the largest margin of both, margins clipped to ±100, and a bin that only unlearned
models reach counts as 1e-5 of the retrained ones. Their code drops the largest margin, which is
on the last edge; here it is in the last bin.

The audit's pairs are such an ensemble: each has the margin of its targets before, after and
without. With a few dozen pairs the histograms of two equal distributions differ as well;
`noise` measures by how much. No claim rests on KLoM: an audit's claim is its bound.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, log

BINS = 20
CLIPPED = 100.0
FLOOR = 1e-5


@dataclass(frozen=True, slots=True)
class MarginDistance:
    """KLoM to the retrained models, in nats, >= 0.

    after: of the unlearned models. before: of the models before unlearning, the result of doing
    nothing. noise: of one half of the retrained models to the other half.
    """

    after: float
    before: float
    noise: float


def klom(unlearned: Sequence[float], retrained: Sequence[float]) -> float:
    """Return KL(unlearned ‖ retrained) of the binned margins; each (n,) finite, n >= 1."""
    ours, theirs = (
        [min(max(value, -CLIPPED), CLIPPED) for value in part]
        for part in (unlearned, retrained)
    )
    low, high = min(*ours, *theirs), max(*ours, *theirs)
    if low == high:
        return 0.0
    edges = [low + (high - low) * step / BINS for step in range(1, BINS)]
    terms = []
    for here, there in zip(_shares(ours, edges), _shares(theirs, edges), strict=True):
        if here:
            terms.append(here * log(here / max(there, FLOOR)))
    return max(fsum(terms), 0.0)


def distances(
    before: Sequence[float], after: Sequence[float], retrained: Sequence[float]
) -> MarginDistance:
    """Return the distances of n pairs, in their order; each (n,) finite, n >= 2."""
    half = len(retrained) // 2
    return MarginDistance(
        klom(after, retrained),
        klom(before, retrained),
        klom(retrained[half:], retrained[:half]),
    )


def _shares(values: Sequence[float], edges: Sequence[float]) -> list[float]:
    counts = [0] * (len(edges) + 1)
    for value in values:
        counts[bisect_right(edges, value)] += 1
    return [count / len(values) for count in counts]
