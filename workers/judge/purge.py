"""Check 4: what held the erased records can no longer be read.

Earlier heads and states, and the stored rows themselves, hold a person as much as the
model does. Someone tried to read each of them after the erasure; here is the outcome.
"""

from workers.judge.base import Check, Judgement, PurgeClaim

NUMBER, NAME = 4, "purge"
THRESHOLD = "0 readable, 0 erased rows stored"


def check_purge(claim: PurgeClaim) -> Judgement:
    """Judge the probes and the stored row ids. Without a probe nothing is decided."""
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
    check = Check(NUMBER, NAME, value, None, THRESHOLD, passed)
    return Judgement(check, undecided=unsure and not refuted)
