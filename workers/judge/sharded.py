"""The check `untouched-shards`: all shards but the named ones are as they were.

The named ones are refitted from the stored rows elsewhere, as any model is. The others are not
refitted: their files, and the digests of the rows that they were fitted on, must be those of
the version before, which the log has. They were judged when they were fitted for an erasure, or
learned without a judgement, as the first version of every model is.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from lethe.catalogue import CHECKS
from workers.judge.base import Judgement
from workers.judge.checks import judged

UNTOUCHED = CHECKS["untouched-shards"]


@dataclass(frozen=True, slots=True)
class ShardsClaim:
    """The shards of a version and of the one before: each (file, rows), hex SHA-256.

    named: those that the certificate names as refitted, as they were before. files: of the
    version before as claimed, to be confirmed by the log's digest of its manifest
    (`rows-before`); of the judged one recomputed. rows: recomputed for both.
    """

    named: Sequence[int]
    before: Sequence[tuple[str, str]]
    after: Sequence[tuple[str, str]]


def check_untouched(claim: ShardsClaim) -> Judgement:
    """Judge that only the named shards differ from those of the version before."""
    count, named = len(claim.before), list(claim.named)
    if len(claim.after) != count or named != sorted(set(named) & set(range(count))):
        return judged(UNTOUCHED, "the named shards are none of the model's", passed=False)
    others = sorted(set(range(count)) - set(named))
    changed = [place for place in others if claim.before[place] != claim.after[place]]
    if changed:
        words = f"shard {changed[0]} differs, and is not named"
        return judged(UNTOUCHED, words, passed=False)
    entries = "".join(f"{place} {' '.join(claim.after[place])}\n" for place in others)
    digest = hashlib.sha256(entries.encode()).hexdigest()
    words = f"{len(others)} of {count}, sha256 {digest}"
    return judged(UNTOUCHED, words, passed=True)
