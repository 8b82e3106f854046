"""Samples that lose a member without any other changing: what exact replays rest on.

Everything is ranked by a hash of what it is, and the first k are taken: uniform without
replacement, as one draw. Without a member the sample is the same if it was not in it, and has
the next in rank in its place if it was. `rounds.sample` draws by position instead, so that a
client who leaves changes every round's sample.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from workers.training.fedavg.seeds import derive, stream


def chosen(clients: Iterable[str], count: int, seed: int, round: int) -> list[str]:
    """Return `count` (0: all) of the clients of a round, sorted."""
    ranked = sorted(clients, key=lambda name: (derive(seed, "rank", round, name), name))
    return sorted(ranked[: count or None])


def drawn(
    rows: NDArray[np.int64], count: int, seed: int, *purpose: str | int
) -> NDArray[np.int64]:
    """Return which of `rows` are in the sample of a step: places in it (m,), rising.

    rows are numbers that a row keeps when others leave, (n,) rising; m = min(count, n).
    """
    # The i-th number of a stream depends on i and the seed alone: it is row i's rank.
    ranks = stream(seed, *purpose).random(int(rows[-1]) + 1)[rows]
    return np.sort(np.argsort(ranks, kind="stable")[:count]).astype(np.int64)
