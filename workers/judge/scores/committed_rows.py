"""The salted digests of the rows that a judgement by samples uses, never the rows.

A version of a network commits to all of its rows by one digest over the sorted digests of each
(`rows-before`, `rows-after`). The full lists open that digest without revealing a row, and show
which of the committed rows was scored where.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from workers.judge.samples.empirical_claim import EmpiricalClaim


@dataclass(frozen=True, slots=True)
class CommittedRows:
    """Digests of 32 bytes. stored: of all retained rows; gone: of the erased ones.

    forget, pool, retained: of the rows that a claim has scores of, in the claim's order; empty
    if nothing could be scored.
    """

    stored: Sequence[bytes]
    gone: Sequence[bytes]
    forget: Sequence[bytes]
    pool: Sequence[bytes]
    retained: Sequence[bytes]

    @property
    def before(self) -> str:
        """The hex SHA-256 that the version before the erasure commits to."""
        return _digest([*self.stored, *self.gone])

    @property
    def after(self) -> str:
        """The hex SHA-256 that the published version commits to."""
        return _digest(self.stored)


def problem_with(claim: EmpiricalClaim, rows: CommittedRows) -> str | None:
    """Return what separates a claim's scores from the committed rows, None if nothing does.

    Each score must be of one distinct committed row: forget rows among the erased ones,
    retained rows among the retained ones, and no row both trained on and unseen.
    """
    stored, gone = set(rows.stored), set(rows.gone)
    scored = [*rows.forget, *rows.pool, *rows.retained]
    sizes = len(claim.forget_labels), len(claim.pool_labels), len(claim.retained_labels)
    if (len(rows.forget), len(rows.pool), len(rows.retained)) != sizes:
        return "there must be one row for each score"
    if len(stored) + len(gone) != len(rows.stored) + len(rows.gone) or stored & gone:
        return "a row is committed to twice"
    if len(set(scored)) != len(scored):
        return "a row is scored twice"
    if not set(rows.forget) <= gone:
        return "a forget row is none of those that went"
    if not set(rows.retained) <= stored:
        return "a retained row is none of those that are left"
    if not set(rows.pool) <= stored | gone:
        return "an unseen row is none that was committed to"
    return None


def _digest(rows: Sequence[bytes]) -> str:
    return hashlib.sha256(b"".join(sorted(rows))).hexdigest()
