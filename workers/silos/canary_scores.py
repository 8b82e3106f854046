"""A silo's answer about the registered canary, next to its clients' scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.arrays import Matrix

PLANTED, SIDES = "canary_planted", ("before", "after")


@dataclass(frozen=True, slots=True, eq=False)
class ClientCanary:
    """Logits (k, classes) float64 of both models on one client's stamped rows.

    The held rows come first, then the unseen ones, whatever their labels. leaving, staying:
    the planted rows among its forget rows and its stored training rows.
    """

    before: Matrix
    after: Matrix
    leaving: int
    staying: int

    def is_plausible(self, rows: int) -> bool:
        """Return whether all rows are there and finite, or a liar could refute the model."""
        logits = (self.before, self.after)
        return all(len(one) == rows and np.isfinite(one).all() for one in logits)


def canary_arrays(
    answers: Sequence[ClientCanary | None], classes: int
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a message, none if no client answers about a canary."""
    found = [one for one in answers if one is not None]
    if not found:
        return {}
    arrays: dict[str, NDArray[Any]] = {
        PLANTED: np.array([[one.leaving, one.staying] for one in found], dtype=np.int64)
    }
    for side in SIDES:
        parts = [getattr(one, side) for one in found]
        arrays[f"canary_{side}"] = np.concatenate([np.zeros((0, classes)), *parts])
    return arrays


def read_canaries(
    arrays: Mapping[str, NDArray[Any]], rows: Sequence[int]
) -> Sequence[ClientCanary | None]:
    """Return each client's canary answer over `rows` rows; all None if there is none.

    Raises LookupError or ValueError for arrays of another form.
    """
    if PLANTED not in arrays:
        return [None] * len(rows)
    logits = [arrays[f"canary_{side}"] for side in SIDES]
    if [one.dtype.kind for one in logits] != ["f", "f"]:
        raise ValueError("types")
    found: list[ClientCanary | None] = []
    first = 0
    for number, (leaving, staying) in zip(rows, arrays[PLANTED].tolist(), strict=True):
        if type(leaving) is not int or type(staying) is not int or min(leaving, staying) < 0:
            raise ValueError("counts")
        own = slice(first, first + number)
        found.append(ClientCanary(logits[0][own], logits[1][own], leaving, staying))
        first += number
    if {len(one) for one in logits} != {first}:
        raise ValueError("lengths")
    return found
