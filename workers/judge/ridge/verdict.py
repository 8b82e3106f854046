"""The checks of a ridge guarantee in their order, and the verdict on them.

First the statistics (of rows, messages or a masked round), then the head (each guarantee has
its own check), then what the files of this room register, in the catalogue's order.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from lethe.catalogue import VERIFIERS, CheckSpec
from workers.judge.base import Judgement, Report
from workers.judge.checks import guarded, guarded_all, report_of
from workers.judge.retention import PURGE, RETAINED_SET, check_purge, check_retained_set
from workers.judge.ridge import (
    freivalds,
    head,
    head_bound,
    head_certified,
    masked,
    resummed,
    statistics,
)
from workers.judge.ridge.claim import ExactClaim, RemovalClaim, RidgeClaim
from workers.judge.ridge.room import FURTHER, Judging
from workers.judge.ridge.statistics import Recomputed

Vouched = tuple[Judgement, Recomputed | None]


@dataclass(frozen=True, slots=True)
class RidgeVerifier:
    """Judges the erasure from a ridge head by one guarantee. Shares no code with the methods.

    head, check_head: the check of the head that this guarantee has.
    """

    id: str
    head: CheckSpec
    check_head: Callable[[RidgeClaim, Recomputed | None], Judgement]

    @property
    def version(self) -> str:
        """Changes whenever the same claim may get another verdict."""
        return VERIFIERS[self.id]

    def verify(self, claim: ExactClaim) -> Report:
        """Return the numbered verdict. Never raises for anything a claim may contain."""
        return self.verify_each(replace(claim, others=()))[0]

    def verify_each(self, claim: ExactClaim) -> list[Report]:
        """Return the verdict on the claim, and on each of its `others`, in their order.

        What they share, the version, is judged once: it costs the same for one and for many.
        """
        first, found = _check_statistics(claim)
        judging = Judging(claim, found)

        def second() -> Judgement:
            judgement = self.check_head(claim.ridge, found)
            # Where check 1 could not decide on statistics, nothing here refutes the head.
            return judgement if found else replace(judgement, undecided=first.undecided)

        def own(removal: RemovalClaim) -> list[Judgement]:
            return [
                guarded(
                    RETAINED_SET,
                    lambda: check_retained_set(
                        removal.retained_set, judging.rows, judging.trees
                    ),
                ),
                guarded(PURGE, lambda: check_purge(removal.purge)),
            ]

        begin, end = [first, guarded(self.head, second)], list[Judgement]()
        for spec, check in FURTHER.functions():
            end += guarded_all(spec, partial(check, judging))
        removals = [RemovalClaim(claim.retained_set, claim.purge), *claim.others]
        return [report_of([*begin, *own(removal), *end]) for removal in removals]


def _check_statistics(claim: ExactClaim) -> Vouched:
    """Return check 1 of this kind of data, and the statistics that it vouches for."""
    ridge = claim.ridge
    spec, check = statistics.SPEC, partial(statistics.check_statistics, ridge, claim.rows)
    if claim.masked is not None:
        spec, check = masked.SPEC, partial(masked.check_masked, ridge, claim.masked)
    elif claim.messages is not None:
        spec, check = resummed.SPEC, partial(resummed.check_resummed, claim)
    elif ridge.mode == "freivalds":
        spec, check = freivalds.SPEC, partial(freivalds.check_claimed, ridge, claim.rows)
    found: list[Recomputed | None] = []

    def run() -> Judgement:
        judgement, vouched = check()
        found.append(vouched)
        return judgement

    return guarded(spec, run), found[0] if found else None


EXACT = RidgeVerifier("exact", head.SPEC, head.check_head)
NUMERICALLY_EXACT = RidgeVerifier("numerically-exact", head_bound.SPEC, head_bound.check_head)
CERTIFIED = RidgeVerifier(
    "certified-approximate", head_certified.SPEC, head_certified.check_head
)
VERIFIERS_OF_HEADS = {one.id: one for one in (EXACT, NUMERICALLY_EXACT, CERTIFIED)}
