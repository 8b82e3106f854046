"""The canary's part of a scores file. A file without a canary does not have it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.arrays import Labels
from workers.errors import ArtifactError
from workers.judge.samples.canary import CanaryClaim

MEMBER = "canary"
COUNTS = ("leaving", "staying", "target")
SIDES = ("before", "after")


def canary_arrays(canary: CanaryClaim | None) -> dict[str, NDArray[Any]]:
    """Return the logits before and after (n, c) float64 by the names of their arrays."""
    if canary is None:
        return {}
    return {f"{MEMBER}_{side}": getattr(canary, side) for side in SIDES}


def said_of_canary(canary: CanaryClaim | None) -> dict[str, Any]:
    """Return the metadata: the target, and how many planted rows are erased and retained."""
    if canary is None:
        return {}
    return {MEMBER: {name: getattr(canary, name) for name in COUNTS}}


def read_canary(
    arrays: Mapping[str, NDArray[Any]], said: Mapping[str, Any]
) -> CanaryClaim | None:
    """Parse the output of both functions above. Raises LookupError or ArtifactError."""
    if MEMBER not in said:
        return None
    counts = {name: said[MEMBER][name] for name in COUNTS}
    if any(type(count) is not int or count < 0 for count in counts.values()):
        raise ArtifactError("planted rows are counted from 0")
    before, after = (arrays[f"{MEMBER}_{side}"] for side in SIDES)
    return CanaryClaim(before=before, after=after, **counts)


def reordered(canary: CanaryClaim, labels: Labels, places: NDArray[np.int64]) -> CanaryClaim:
    """Return the canary with its rows in the new order of the pool's.

    labels (n,): of the pool in its old order; places (n,): the old position of each row. Raises
    ArtifactError for logits that are not of the rows of other classes than the target.
    """
    stamped = labels != canary.target
    if not len(canary.before) == len(canary.after) == int(stamped.sum()):
        raise ArtifactError("a canary has one row for each unseen row of another class")
    own = np.cumsum(stamped) - 1
    order = own[places][stamped[places]]
    return replace(canary, before=canary.before[order], after=canary.after[order])
