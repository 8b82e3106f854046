"""The checks of a ridge guarantee in their order, and the verdict on them.

First the statistics (of rows, messages or a masked round), then the head (each guarantee has
its own check), then the checks registered by the files of this package, in the catalogue's
order.

Where rows were never sent, check 1 sums the retained messages again, independently of the
method. Whether their rows exist is beyond it: they were not seen. G of rows has no negative
eigenvalue, and a bound may divide by λ. Of sums, it is checked that G has none below -λ/2, and
bounds divide by λ/2 (`head.convexity`). Sketches are exempt: there the eigenvalues of the rows
matter, which are within `attested` of the sketches' by the clients' statement.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle

import numpy as np

from lethe.catalogue import CHECKS, VERIFIERS, CheckSpec
from workers.judge.base import Judgement, Report
from workers.judge.checks import (
    ODD_INPUT,
    PURGE,
    RETAINED_SET,
    check_purge,
    guarded,
    guarded_all,
    judged,
    report_of,
)
from workers.judge.merkle import table
from workers.judge.ridge import freivalds, head, masked, statistics
from workers.judge.ridge.chain import FURTHER, Judging, Sets, check_links, sets_of
from workers.judge.ridge.claim import ClaimedStatistics, ExactClaim, RidgeClaim
from workers.judge.ridge.freivalds import malformed
from workers.judge.ridge.posterior import check_definite
from workers.judge.ridge.reading import LeafSort, Leaves, Reading, Vouched
from workers.judge.ridge.statistics import (
    Recomputed,
    UnusableRowsError,
    check_constants,
    check_possible,
    digest_of,
)

RESUMMED = CHECKS["statistics-resummed"]


def check_resummed(whole: ExactClaim) -> tuple[Judgement, Recomputed | None]:
    """Return the judgement, and the sum for the checks that build on it."""
    claim = whole.ridge
    try:
        if any(len(block.rows) for block in whole.rows):
            raise UnusableRowsError("there are rows beside the messages")
        summed = resum(whole.messages or (), claim.dimension, claim.classes, claim.bits)
        digest = digest_of(summed, claim.exponents, claim.bits, claim.penalty)
        if claim.attested == 0:
            check_possible(summed, claim.bits)
            check_definite(summed.gram, claim.exponents, claim.penalty)
            summed = replace(summed, definite=False)
    except UnusableRowsError as reason:
        return judged(RESUMMED, str(reason), passed=False), None
    passed = digest == claim.statistics_digest
    return judged(RESUMMED, digest, passed=passed), summed


def resum(
    messages: Sequence[ClaimedStatistics], dimension: int, classes: int, bits: int
) -> Recomputed:
    """Return the sum of all messages, exact. Raises UnusableRowsError."""
    check_constants(dimension, classes, bits)
    gram = np.zeros((dimension, dimension), dtype=np.int64)
    moment = np.zeros((dimension, classes), dtype=np.int64)
    rows = 0
    for message in reversed(messages):
        problem = malformed(message, dimension, classes)
        if problem is not None:
            raise UnusableRowsError(problem.replace("the claimed", "a message's"))
        if not isinstance(message.rows, int) or message.rows < 0:
            raise UnusableRowsError("a message's number of rows is no number of rows")
        rows += message.rows
        limit = message.rows * (2 ** (bits - 1) - 1) ** 2
        # Then no partial sum can leave int64 while the limit on all rows does not.
        if rows * (2 ** (bits - 1) - 1) ** 2 >= 2**63 or _exceeds(message, limit):
            raise UnusableRowsError("a message has larger entries than its rows can have")
        gram += message.gram
        moment += message.moment
    return Recomputed(gram, moment, rows)


def _exceeds(message: ClaimedStatistics, limit: int) -> bool:
    return any(
        int(values.max()) > limit or int(values.min()) < -limit
        for values in (message.gram, message.moment)
    )


@dataclass(frozen=True, slots=True)
class RidgeVerifier:
    """Judges the erasure from a ridge head by one guarantee. Shares no code with the methods.

    head, check_head: this guarantee's check of the head.
    """

    id: str
    head: CheckSpec
    check_head: Callable[[RidgeClaim, Recomputed | None], Judgement]

    @property
    def version(self) -> str:
        """Changes whenever the same claim may get another verdict."""
        return VERIFIERS[self.id]

    def verify(self, claim: ExactClaim) -> Report:
        """Return the numbered verdict on the first request. Never raises for any claim."""
        return self.verify_each(replace(claim, removals=claim.removals[:1]))[0]

    def verify_each(self, claim: ExactClaim) -> list[Report]:
        """Return the verdict on each request of the claim, in their order.

        Their common version is judged once: it costs the same for one request and for many.
        """
        reading = Reading(claim, _erased(claim))
        first, found = _check_statistics(claim, reading)
        judging = Judging(claim, found, _once(lambda: _sets(claim, reading)))

        def second() -> Judgement:
            judgement = self.check_head(claim.ridge, found)
            # If check 1 was undecided on statistics, the head cannot be refuted.
            return judgement if found else replace(judgement, undecided=first.undecided)

        begin, end = [first, guarded(self.head, second)], list[Judgement]()
        for spec, check in FURTHER.functions():
            end += guarded_all(spec, partial(check, judging))
        links = [removal.link for removal in claim.removals]
        kept = guarded_all(
            RETAINED_SET,
            lambda: check_links(claim.chain, links, judging.sets, _rows(claim, found, reading)),
        )
        gone = guarded_all(PURGE, lambda: _check_purges(claim, reading))
        # A claim that cannot be evaluated gives one judgement, used for all requests.
        return [
            report_of([*begin, *own, *end])
            for _, *own in zip(links, cycle(kept), cycle(gone), strict=False)
        ]


def _once(make: Callable[[], Sets]) -> Callable[[], Sets]:
    """Return a function that calls `make` once: later calls return or raise the same."""
    found: list[Sets | Exception] = []

    def get() -> Sets:
        if not found:
            try:
                found.append(make())
            except ODD_INPUT as error:
                found.append(error)
        [one] = found
        if isinstance(one, Exception):
            raise one
        return one

    return get


def _erased(claim: ExactClaim) -> frozenset[str]:
    try:
        return frozenset(name for one in claim.removals for name in one.purge.erased_rows)
    except ODD_INPUT:  # the check of the purge then fails
        return frozenset()


def _sets(claim: ExactClaim, reading: Reading) -> Sets:
    if not claim.unseen:
        return sets_of(claim.chain, reading.leaves())
    commitments = table(list(claim.unseen.values()))
    never = np.zeros(len(commitments), dtype=np.int64)
    leaves = Leaves(commitments, np.zeros_like(commitments), never)
    return sets_of(claim.chain, LeafSort(leaves))


def _rows(claim: ExactClaim, found: Recomputed | None, reading: Reading) -> int:
    """Return the number of rows: those stored here, or those in the clients' sums."""
    rows = reading.rows
    if claim.masked is not None:
        rows += found.rows if found else 0
    if claim.messages is not None:
        rows += sum(message.rows for message in claim.messages)
    return rows


def _check_purges(claim: ExactClaim, reading: Reading) -> list[Judgement]:
    """Judge what each request destroyed, including erased records that are still stored."""
    stored = [*reading.stored, *_erased(claim).intersection(claim.unseen)]
    return [
        check_purge(replace(one.purge, retained_rows=[*one.purge.retained_rows, *stored]))
        for one in claim.removals
    ]


def _check_statistics(claim: ExactClaim, reading: Reading) -> Vouched:
    """Return check 1 for this kind of data, and the statistics that it verified."""
    spec, check = statistics.SPEC, reading.statistics
    if claim.masked is not None:
        spec, check = masked.SPEC, partial(masked.check_masked, claim.ridge, claim.masked)
    elif claim.messages is not None:
        spec, check = RESUMMED, partial(check_resummed, claim)
    elif claim.ridge.mode == "freivalds":
        spec = freivalds.SPEC
    found: list[Recomputed | None] = []

    def run() -> Judgement:
        try:
            judgement, vouched = check()
        except UnusableRowsError as reason:
            return judged(spec, str(reason), passed=False)
        found.append(vouched)
        return judgement

    return guarded(spec, run), found[0] if found else None


EXACT = RidgeVerifier("exact", head.ROUNDED, head.check_rounded)
NUMERICALLY_EXACT = RidgeVerifier("numerically-exact", head.BOUND, head.check_bound)
CERTIFIED = RidgeVerifier("certified-approximate", head.CERTIFIED, head.check_certified)
VERIFIERS_OF_HEADS = {one.id: one for one in (EXACT, NUMERICALLY_EXACT, CERTIFIED)}
