"""Where the files of this room register the checks that follow statistics and head."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workers.judge.base import Judgement
from workers.judge.checks import CheckRoom
from workers.judge.ridge.chain import Sets
from workers.judge.ridge.claim import ExactClaim
from workers.judge.ridge.statistics import Recomputed


@dataclass(frozen=True, slots=True, eq=False)
class Judging:
    """A claim, and the statistics that check 1 vouches for, None where it vouches for none.

    sets: returns the retained sets of the update, or raises as `chain.sets_of`.
    """

    claim: ExactClaim
    statistics: Recomputed | None
    sets: Callable[[], Sets]


# Judgements of one claim: none where it has nothing for the check to look at.
FURTHER: CheckRoom[Callable[[Judging], Sequence[Judgement]]] = CheckRoom("workers.judge.ridge")
