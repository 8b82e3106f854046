"""The registry for the checks that follow statistics and head."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workers.judge.base import Judgement
from workers.judge.checks import CheckRoom
from workers.judge.ridge.chain import Sets
from workers.judge.ridge.claim import ExactClaim
from workers.judge.ridge.statistics import Recomputed


@dataclass(frozen=True, slots=True, eq=False)
class Judging:
    """A claim, and the statistics that check 1 verified, None if it verified none.

    sets: returns the retained sets of the update, or raises as `chain.sets_of`.
    """

    claim: ExactClaim
    statistics: Recomputed | None
    sets: Callable[[], Sets]


# Judgements of one claim: none if it has nothing that the check applies to.
FURTHER: CheckRoom[Callable[[Judging], Sequence[Judgement]]] = CheckRoom("workers.judge.ridge")
