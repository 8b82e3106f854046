"""A judgement by samples, as it is kept: which rows were scored, and what they scored."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from workers.tasks.case import Judged
from workers.tasks.network_rows import Holdings
from workers.verifier.committed_rows import CommittedRows
from workers.verifier.empirical import VERIFIER
from workers.verifier.empirical_claim import EmpiricalClaim
from workers.verifier.scores_file import decode_scores, encode_scores

MOST_RETAINED = 2000  # rows of a sample: it tells an accuracy to two points


def chosen(count: int, seed: bytes) -> NDArray[np.int64]:
    """Return which of `count` retained rows are scored: all, or a sample drawn by the seed."""
    if count <= MOST_RETAINED:
        return np.arange(count)
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(seed)))
    found: NDArray[np.int64] = np.sort(rng.choice(count, MOST_RETAINED, replace=False))
    return found


def committed(
    rows: Holdings,
    went: Holdings,
    digests: Mapping[str, bytes],
    own: Collection[str],
    seed: bytes,
) -> CommittedRows:
    """Return the salted digests of all rows, and of those tested, in the order of their scores.

    rows: those stored. went: those that the update removed, of which the request asked for the
    records `own`. digests: of each row of both, by record.
    """
    mine = [
        (record, out)
        for one in went.values()
        for record, out in zip(one.records, one.held, strict=True)
        if record in own
    ]
    unseen = [
        record
        for one in rows.values()
        for record, out in zip(one.records, one.held, strict=True)
        if out
    ]
    trained = [record for one in rows.values() for record in one.trained()]
    scored = {
        "forget": [record for record, out in mine if not out],
        "pool": [*(record for record, out in mine if out), *unseen],
        "retained": [trained[place] for place in chosen(len(trained), seed)],
    }
    return CommittedRows(
        stored=[digests[record] for one in rows.values() for record in one.records],
        gone=[digests[record] for one in went.values() for record in one.records],
        **{side: [digests[record] for record in records] for side, records in scored.items()},
    )


def judged(claim: EmpiricalClaim, rows: CommittedRows, details: Mapping[str, str]) -> Judged:
    """Judge a claim as it is kept: nothing enters the verdict that the file does not hold."""
    rows = replace(
        rows,
        forget=rows.forget if len(claim.forget_labels) else (),
        pool=rows.pool if len(claim.pool_labels) else (),
        retained=rows.retained if len(claim.retained_labels) else (),
    )
    file = encode_scores(claim, rows)
    report = VERIFIER.verify(decode_scores(file)[0])
    return Judged(VERIFIER.id, VERIFIER.version, report, details, file)
