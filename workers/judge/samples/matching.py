"""Non-members like the members: same client, same label, chosen by the verifier's seed.

An attack that distinguishes forget rows from rows of other people, or of other classes, has
found a shift between distributions and shows nothing about memory. So each tested forget row
gets a partner from its own stratum (client, label). If the pool is too small, a random part of
the forget set with nearly the same mix is tested; if even that fails, nothing is tested.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workers.errors import RefusedError

Places = NDArray[np.int64]
RESERVED = 5  # one in this many pool rows is never a partner: attacks are calibrated on it
STEPS = 64  # sizes tried, as fractions of the forget set


@dataclass(frozen=True, slots=True, eq=False)
class Matching:
    """Row numbers: pairs of forget and unseen rows (m,) each, and the other pool rows.

    tested: the share of the forget set that has partners. share: of the rows wanted for a
    sample with the forget set's own mix, those that have one.
    """

    forget: Places
    unseen: Places
    others: Places
    tested: float
    share: float


def match(
    forget: tuple[ArrayLike, ArrayLike],
    pool: tuple[ArrayLike, ArrayLike],
    seed: bytes,
    coverage: float,
) -> Matching:
    """Pair forget rows with pool rows; each side is its (clients, labels), one per row.

    Takes the largest sample of the forget set's mix of which a share `coverage` finds partners.
    Raises RefusedError if there is none.
    """
    strata = _strata(forget, pool)
    wanted, offered = strata
    kinds = 1 + max(int(wanted.max(initial=-1)), int(offered.max(initial=-1)))
    order = shuffled(len(offered), seed, b"pool")
    reserved, candidates = np.split(order, [len(order) // RESERVED])
    there = np.bincount(wanted, minlength=kinds)
    here = np.bincount(offered[candidates], minlength=kinds)
    for step in range(STEPS, 0, -1):
        target = (there * step + STEPS // 2) // STEPS
        pairs = np.minimum(target, here)
        if pairs.sum() and pairs.sum() >= coverage * target.sum():
            break
    else:
        raise RefusedError(
            "too few unseen rows of the same clients and labels: hold out more of them"
        )
    tested = _first_of_each(wanted, shuffled(len(wanted), seed, b"forget"), pairs)
    partners = _first_of_each(offered, candidates, pairs)
    spare = np.setdiff1d(candidates, partners)
    return Matching(
        tested,
        partners,
        np.sort(np.concatenate([reserved, spare])),
        len(tested) / len(wanted),
        float(pairs.sum() / target.sum()),
    )


def shuffled(size: int, seed: bytes, purpose: bytes) -> Places:
    """Return 0 … size - 1 in an order determined by SHAKE-256 of the seed, on any machine."""
    label = b"lethe/sample/v1\0" + len(purpose).to_bytes(4, "big") + purpose
    stream = hashlib.shake_256(label + seed).digest(8 * size)
    return np.argsort(np.frombuffer(stream, "<u8"), kind="stable")


def _strata(
    forget: tuple[ArrayLike, ArrayLike], pool: tuple[ArrayLike, ArrayLike]
) -> tuple[Places, Places]:
    """Return the stratum of each forget row and of each pool row, as one numbering."""
    size = len(np.asarray(forget[0]))
    clients, labels = (
        np.unique(np.concatenate([one, two]), return_inverse=True)[1]
        for one, two in zip(forget, pool, strict=True)
    )
    both = clients.astype(np.int64) * (int(labels.max(initial=0)) + 1) + labels
    dense = np.unique(both, return_inverse=True)[1].astype(np.int64)
    return dense[:size], dense[size:]


def _first_of_each(strata: Places, order: Places, counts: Places) -> Places:
    """Return, grouped by stratum, the first rows of `order` up to the count of each."""
    grouped = order[np.argsort(strata[order], kind="stable")]
    there = np.bincount(strata[order], minlength=len(counts))
    starts = np.repeat(np.cumsum(there) - there, there)
    rank = np.arange(len(grouped)) - starts
    return grouped[rank < counts[strata[grouped]]]
