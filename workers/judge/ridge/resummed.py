"""Check 1 where rows were never sent: the published statistics are the sum of the messages.

The retained messages are summed again, independently of the method. Whether their rows exist is
beyond this check: they were not seen. It does check that rows can have the sum, since every
bound that divides by λ needs G to have no negative eigenvalue. (Sketches are exempt: there the
eigenvalues of the rows matter, which are within `attested` of the sketches' by the clients'
statement.)
"""

from collections.abc import Sequence

import numpy as np

from lethe.catalogue import CHECKS
from workers.judge.base import Judgement
from workers.judge.checks import judged
from workers.judge.ridge.claim import ClaimedStatistics, ExactClaim
from workers.judge.ridge.freivalds import malformed
from workers.judge.ridge.posterior import least_eigenvalue
from workers.judge.ridge.statistics import (
    Recomputed,
    UnusableRowsError,
    check_constants,
    check_possible,
    digest_of,
)

SPEC = CHECKS["statistics-resummed"]


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
            if least_eigenvalue(summed.gram, claim.exponents)[1]:
                raise UnusableRowsError("the sum of the messages is not that of any rows")
    except UnusableRowsError as reason:
        return judged(SPEC, str(reason), passed=False), None
    passed = digest == claim.statistics_digest
    return judged(SPEC, digest, passed=passed), summed


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
