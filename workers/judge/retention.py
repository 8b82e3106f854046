"""The retained set lost exactly the erased records, and what held them cannot be read.

The trees are recomputed from the full lists of commitments, so the published roots, which
certificates and proofs refer to, are bound to the records really kept. Earlier heads and
states, and the stored rows themselves, contain a person's data as much as the model does: after
the erasure, a probe tried to read each of them, and the purge has the outcome.
"""

from collections.abc import Sequence
from itertools import islice
from operator import lt

from lethe.catalogue import CHECKS
from workers.judge.base import Judgement, PurgeClaim, RetainedSetClaim, UpdateClaim
from workers.judge.checks import guarded, judged
from workers.judge.merkle import NO_CONTENT, Tree, table

RETAINED_SET, PURGE = CHECKS["retained-set"], CHECKS["purge"]


def check_retention(kept: RetainedSetClaim, gone: PurgeClaim) -> list[Judgement]:
    """Judge both. The rows counted are those which the purge found still stored."""
    return [
        guarded(RETAINED_SET, lambda: check_retained_set(kept, len(set(gone.retained_rows)))),
        guarded(PURGE, lambda: check_purge(gone)),
    ]


def check_purge(claim: PurgeClaim) -> Judgement:
    """Judge the probes and the stored row ids. Without a probe the check is undecided."""
    readable = sum(probe.readable is not False for probe in claim.probes)
    stored = len(set(claim.erased_rows).intersection(claim.retained_rows))
    value = f"{readable} of {len(claim.probes)} readable, {stored} erased rows stored"
    if not claim.erased_rows:
        value = "no erased row is named"
    elif not claim.probes:
        value = "nothing was probed"
    refuted = bool(readable or stored)
    unsure = not (claim.probes and claim.erased_rows)
    passed = not (refuted or unsure)
    return judged(PURGE, value, passed=passed, undecided=unsure and not refuted)


def check_retained_set(claim: RetainedSetClaim, rows: int) -> Judgement:
    """Judge the retained sets; rows: how many rows the statistics were recomputed from."""
    problem = _problem(claim, rows)
    value = f"{len(claim.before)} - {len(claim.erased)} = {len(claim.after)} records"
    return judged(RETAINED_SET, problem or value, passed=problem is None)


def _problem(claim: RetainedSetClaim, rows: int) -> str | None:
    malformed = _malformed("before", claim.before)
    if malformed is not None:
        return malformed
    erased = set(claim.erased)
    if not erased:
        return "no erased record is named"
    if len(erased) != len(claim.erased):
        return "an erased record is named twice"
    if erased.difference(claim.before):
        return "an erased record was not in before"
    if [one for one in claim.before if one not in erased] != list(claim.after):
        # They are equal, so `after` is as well-formed as `before`.
        return _difference(claim, erased)
    if (len(claim.before), len(claim.after)) != (claim.before_count, claim.after_count):
        return "a published count is wrong"
    update = claim.update
    malformed = None if update is None else _malformed_update(claim, update)
    if malformed is not None:
        return malformed
    # Every set of the chain is the set that the round grew to without some of its records.
    earlier = () if update is None else update.earlier
    grown = sorted([*claim.before, *earlier])
    without = Tree(table(grown), table([NO_CONTENT] * len(grown))).root_without
    if without(earlier) != claim.before_root:
        return "the published root of before is wrong"
    if without([*earlier, *erased]) != claim.after_root:
        return "the published root of after is wrong"
    last = len(claim.after)
    if update is not None:
        last -= len(update.later)
        if (len(grown) - len(update.added), last) != (update.before_count, update.after_count):
            return "a count of the versions before and after the update is wrong"
        if without(update.added) != update.before_root:
            return "the chain does not begin at the version before"
        if without([*earlier, *erased, *update.later]) != update.after_root:
            return "the chain does not end at the version after"
    if rows != last:
        return f"{rows} rows are stored for {last} retained records"
    return None


def _malformed(name: str, leaves: Sequence[bytes]) -> str | None:
    if not _are_commitments(leaves):
        return f"a commitment in {name} is not 32 bytes"
    if not all(map(lt, leaves, islice(leaves, 1, None))):
        return f"{name} is not sorted without duplicates"
    return None


def _difference(claim: RetainedSetClaim, erased: set[bytes]) -> str:
    """Return how `after` differs from what the erasure should leave."""
    malformed = _malformed("after", claim.after)
    if malformed is not None:
        return malformed
    if not erased.isdisjoint(claim.after):
        return "an erased record is still in after"
    return "before without the erased records is not after"


def _malformed_update(claim: RetainedSetClaim, update: UpdateClaim) -> str | None:
    """Return what is wrong with the other requests' records that the same update removed."""
    others = [*update.earlier, *update.later]
    if not _are_commitments(update.added):
        return "a commitment that the round added is not 32 bytes"
    added = set(update.added)
    if len(added) != len(update.added):
        return "the round added a record twice"
    if added.difference(claim.before, update.earlier):
        return "a record that the round added is not in the set that it grew to"
    if not _are_commitments(others):
        return "a commitment of another request is not 32 bytes"
    if len(set(others)) != len(others):
        return "a record is erased twice in one update"
    if not set(update.earlier).isdisjoint(claim.before):
        return "a record erased earlier in the update is still in before"
    if set(update.later).difference(claim.after):
        return "a record erased later in the update is not in after"
    return None


def _are_commitments(leaves: Sequence[bytes]) -> bool:
    return {*map(type, leaves)} <= {bytes} and {*map(len, leaves)} <= {32}
