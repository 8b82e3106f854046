"""Check 1 of a masked model: the published statistics are those before plus the round's sum.

The statistics before are bound by their published digest, the sum is recomputed from the
messages that the clients signed, and the records to be erased are among those that they
released. The rows, and each client's own statistics, were never visible to the service.
"""

from typing import Any

import numpy as np

from lethe.catalogue import CHECKS
from workers.judge.base import Judgement
from workers.judge.checks import judged
from workers.judge.ridge.claim import MaskedClaim, RidgeClaim
from workers.judge.ridge.posterior import check_definite
from workers.judge.ridge.statistics import (
    Recomputed,
    UnusableRowsError,
    check_constants,
    check_possible,
    digest_of,
)
from workers.judge.ridge.unmask import Bodies, RefutedRoundError, read_bodies, unmasked_sum

SPEC = CHECKS["masked-rounds-summed"]


def check_masked(claim: RidgeClaim, masked: MaskedClaim) -> tuple[Judgement, Recomputed | None]:
    """Return the judgement, and the sum for the checks that build on it."""
    try:
        summed = resum(claim, masked)
        digest = digest_of(summed, claim.exponents, claim.bits, claim.penalty)
        check_possible(summed, claim.bits)
        check_definite(summed.gram, claim.exponents, claim.penalty)
    except (RefutedRoundError, UnusableRowsError) as reason:
        return judged(SPEC, str(reason), passed=False), None
    passed = digest == claim.statistics_digest
    return judged(SPEC, digest, passed=passed), summed


def resum(claim: RidgeClaim, masked: MaskedClaim) -> Recomputed:
    """Return the statistics after the round. Raises RefutedRoundError or UnusableRowsError."""
    d, c = claim.dimension, claim.classes
    check_constants(d, c, claim.bits)
    if (masked.plan["dimension"], masked.plan["classes"]) != (d, c):
        raise RefutedRoundError("the round was of another model")
    before = _before(claim, masked)
    bodies = read_bodies(masked)
    added, released = _moved(bodies)
    if not set(masked.erased) <= released:
        raise RefutedRoundError("no client has released a record that is to be erased")
    entries = unmasked_sum(masked.plan, bodies)
    triangle = d * (d + 1) // 2
    gram, moment = before.gram.copy(), before.moment.copy()
    upper = np.triu_indices(d)
    gram[upper] += entries[:triangle]
    gram[upper[1], upper[0]] = gram[upper]
    moment += entries[triangle : triangle + d * c].reshape(d, c)
    rows = before.rows + int(entries[-1])
    if int(entries[-1]) != len(added) - len(released):
        raise RefutedRoundError(
            "the sum covers another number of rows than the ids sent with it"
        )
    if rows < 0 or sum(entries[-c - 1 : -1].tolist()) != int(entries[-1]):
        raise RefutedRoundError("the label counts in the sum are not those of its rows")
    return Recomputed(gram, moment, rows, definite=False)


def _before(claim: RidgeClaim, masked: MaskedClaim) -> Recomputed:
    d, c = claim.dimension, claim.classes
    if masked.before is None:
        if masked.before_digest is not None:
            raise RefutedRoundError("the statistics before the round are missing")
        return Recomputed(np.zeros((d, d), dtype=np.int64), np.zeros((d, c), dtype=np.int64), 0)
    before = Recomputed(masked.before.gram, masked.before.moment, masked.before.rows)
    if before.gram.shape != (d, d) or before.moment.shape != (d, c):
        raise RefutedRoundError("the statistics before the round are of another model")
    symmetric = np.array_equal(before.gram, before.gram.T)
    digest = digest_of(before, claim.exponents, claim.bits, claim.penalty)
    if not symmetric or digest != masked.before_digest:
        raise RefutedRoundError("the statistics before the round are not the published ones")
    return before


def _moved(bodies: Bodies) -> tuple[set[str], set[str]]:
    """Return the ids added and released, each by one member and once."""

    def ids(items: list[Any]) -> set[str]:
        if len(set(items)) != len(items):
            raise RefutedRoundError("a record is added or released twice")
        return set(items)

    inputs = bodies["masked"].values()
    added = ids([item["record"] for body in inputs for item in body["adds"]])
    released = ids([record for body in inputs for record in body["releases"]])
    if added & released:
        raise RefutedRoundError("a record is added and released")
    return added, released
