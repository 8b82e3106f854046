"""Check 3: the retained set went from `before` to `after` by exactly the erased records.

The sorted Merkle trees are recomputed from the full lists of commitments, so the published
roots, which certificates and proofs refer to, are bound to what was really kept.
"""

import hashlib
from collections.abc import Sequence
from itertools import pairwise

from workers.verifier.base import Check, Judgement, RetainedSetClaim, UpdateClaim

NUMBER, NAME = 3, "retained-set"
THRESHOLD = "before without the erased records is after; roots, counts and rows agree"


def check_retained_set(claim: RetainedSetClaim, rows: int) -> Judgement:
    """Judge the retained sets; rows: how many rows the statistics were recomputed from."""
    problem = _problem(claim, rows)
    value = f"{len(claim.before)} - {len(claim.erased)} = {len(claim.after)} records"
    check = Check(NUMBER, NAME, problem or value, None, THRESHOLD, problem is None)
    return Judgement(check)


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    """Return the RFC 6962 section 2.1 root of a list of leaf inputs."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    level = [hashlib.sha256(b"\x00" + leaf).digest() for leaf in leaves]
    while len(level) > 1:
        # Pairing from the left and promoting an odd node is MTH's split at a power of two.
        pairs = [
            hashlib.sha256(b"\x01" + level[i] + level[i + 1]).digest()
            for i in range(0, len(level) - 1, 2)
        ]
        level = pairs + level[2 * len(pairs) :]
    return level[0]


def _problem(claim: RetainedSetClaim, rows: int) -> str | None:
    for name, leaves in (("before", claim.before), ("after", claim.after)):
        if any(not isinstance(leaf, bytes) or len(leaf) != 32 for leaf in leaves):
            return f"a commitment in {name} is not 32 bytes"
        if any(left >= right for left, right in pairwise(leaves)):
            return f"{name} is not sorted without duplicates"
    if not claim.erased:
        return "no erased record is named"
    if len(set(claim.erased)) != len(claim.erased):
        return "an erased record is named twice"
    if not set(claim.erased) <= set(claim.before):
        return "an erased record was not in before"
    if not set(claim.erased).isdisjoint(claim.after):
        return "an erased record is still in after"
    if set(claim.before) - set(claim.erased) != set(claim.after):
        return "before without the erased records is not after"
    if (len(claim.before), len(claim.after)) != (claim.before_count, claim.after_count):
        return "a published count is wrong"
    if merkle_root(claim.before) != claim.before_root:
        return "the published root of before is wrong"
    if merkle_root(claim.after) != claim.after_root:
        return "the published root of after is wrong"
    if claim.update is not None:
        return _update_problem(claim, claim.update, rows)
    if rows != len(claim.after):
        return f"{rows} rows are stored for {len(claim.after)} retained records"
    return None


def _update_problem(claim: RetainedSetClaim, update: UpdateClaim, rows: int) -> str | None:
    """Follow the chain from the judged link to both ends of its update."""
    others = [*update.earlier, *update.later]
    if any(not isinstance(leaf, bytes) or len(leaf) != 32 for leaf in update.added):
        return "a commitment that the round added is not 32 bytes"
    if len(set(update.added)) != len(update.added):
        return "the round added a record twice"
    if not set(update.added) <= {*claim.before, *update.earlier}:
        return "a record that the round added is not in the set that it grew to"
    if any(not isinstance(leaf, bytes) or len(leaf) != 32 for leaf in others):
        return "a commitment of another request is not 32 bytes"
    if len(set(others)) != len(others):
        return "a record is erased twice in one update"
    if not set(update.earlier).isdisjoint(claim.before):
        return "a record erased earlier in the update is still in before"
    if not set(update.later) <= set(claim.after):
        return "a record erased later in the update is not in after"
    first = sorted({*claim.before, *update.earlier} - set(update.added))
    last = sorted(set(claim.after) - set(update.later))
    if (len(first), len(last)) != (update.before_count, update.after_count):
        return "a count of the versions before and after the update is wrong"
    if merkle_root(first) != update.before_root:
        return "the chain does not begin at the version before"
    if merkle_root(last) != update.after_root:
        return "the chain does not end at the version after"
    if rows != len(last):
        return f"{rows} rows are stored for {len(last)} retained records"
    return None
