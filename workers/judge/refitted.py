"""The verifiers of `exact-retrained`, `exact` and `retrained` for models fitted in one go.

1 model-file    2 data    3 retained-set    4 purge    5 registration    6 re-execution
7 rows-before    8 untouched-shards, of shards; bytes-probe, of vector indexes

The model is refitted from the stored rows elsewhere; here its bytes are compared with the
published ones. There is no start to compare: a fit has no initial weights. A recipe was
retrained at execution; a forest was updated, and is fitted for the judge for the first time.
Of sums and forests the sealed state, from which later versions are made, is compared too.
For shards, those that held the rows are refitted, and combined with the others. If two runs of
a program differ, 6 is `rerun-difference`: the distance between the tensors of both.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.catalogue import CHECKS
from workers.judge.base import Judgement, PurgeClaim, RetainedSetClaim
from workers.judge.bytes_probe import PROBE, ProbeClaim, check_probe
from workers.judge.checks import (
    SHA256,
    CheckingVerifier,
    check_model_file,
    check_pairs,
    check_retention,
    guarded,
    judged,
)

# The check `untouched-shards`: all shards but the named ones are as they were.
#
# The named ones are refitted from the stored rows elsewhere, as any model is. The others are
# not refitted: their files, and the digests of the rows that they were fitted on, must be those
# of the version before, which the log has. They were judged when they were fitted for an
# erasure, or learned without a judgement, as the first version of every model is.
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


AGAIN, DIFFERENCE = CHECKS["re-execution"], CHECKS["rerun-difference"]
Tensors = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class RefittedClaim:
    """A published model that was fitted to the retained rows. Digests are hex SHA-256.

    file_digest: recomputed from the model file. claimed_data, data: of the rows, as claimed by
    the fit and as stored. registration: logged, and of the current model. refitted_digest: of
    the verifier's own fit; environment_equal: whether that had the library versions and
    hardware of the judged one. rows_before: digests of all rows of the version before: as
    published, and of the stored rows with the removed ones. shards: for a sharded model. probe:
    of the bytes of files that contain rows. state: of the sealed state that later versions are
    made from, as stored and as the verifier's own fit leads to it; None if there is none.
    """

    retained_set: RetainedSetClaim
    purge: PurgeClaim
    published_digest: str
    file_digest: str
    refitted_digest: str
    claimed_data: str
    data: str
    registration: tuple[str, str]
    environment_equal: bool
    rows_before: tuple[str, str]
    shards: ShardsClaim | None = None
    probe: ProbeClaim | None = None
    state: tuple[str, str] | None = None


def check_refit(claim: RefittedClaim) -> Judgement:
    """Judge the repeated fit: different bytes refute only in an equal environment."""
    found = claim.refitted_digest
    if not SHA256.fullmatch(found):
        return judged(AGAIN, "a digest is not SHA-256 in lower-case hex", passed=False)
    if found == claim.published_digest:
        if claim.state is None:
            return judged(AGAIN, f"the whole fit, sha256 {found}", passed=True)
        sealed, own = claim.state
        if sealed != own or not SHA256.fullmatch(own):
            return judged(AGAIN, "the fit ends with another sealed state", passed=False)
        return judged(AGAIN, f"the whole fit and its state, sha256 {found}", passed=True)
    if claim.environment_equal is True:
        return judged(AGAIN, "the fit ends with another model", passed=False)
    problem = "the fit ends with another model, in another environment"
    return judged(AGAIN, problem, passed=False, undecided=True)


@dataclass(frozen=True, slots=True, eq=False)
class RerunClaim:
    """A published model whose training gives another file each time, and the verifier's own.

    published, own: their tensors by name, None for an unreadable file. tolerance: as
    registered, above 0.
    """

    refit: RefittedClaim
    published: Tensors | None
    own: Tensors | None
    tolerance: float


def check_difference(claim: RerunClaim) -> Judgement:
    """Judge the distance of the verifier's run from the published one.

    In a different environment, a difference is inconclusive.
    """
    here = claim.refit.environment_equal is True
    limit = f"at most {claim.tolerance:g}, the registered tolerance"
    if claim.published is None or claim.own is None:
        whose = "published model" if claim.published is None else "verifier's run"
        return judged(DIFFERENCE, f"the file of the {whose} cannot be read", passed=False)
    if _layout(claim.published) != _layout(claim.own):
        problem = "the runs have tensors of other names, types or shapes, or differ beside them"
        return judged(DIFFERENCE, problem, passed=False, threshold=limit, undecided=not here)
    found = largest_difference(claim.published, claim.own)
    return judged(
        DIFFERENCE,
        f"{found:.3g}" + ("" if here else ", in another environment"),
        passed=0 < claim.tolerance < 1 and found <= claim.tolerance,
        threshold=limit,
        undecided=not here,
    )


def largest_difference(first: Tensors, second: Tensors) -> float:
    """Return the largest max|a - b| / max(|a|, |b|) of two tensors of one name, 0 for none.

    A difference that is not a number, as with NaN or infinity, counts as infinite.
    """
    most = 0.0
    for name, values in first.items():
        scale = 0.0
        for one, other in _in_parts(values, second[name]):
            if not (np.isfinite(one).all() and np.isfinite(other).all()):
                return float("inf")
            scale = max(scale, float(np.abs(one).max()), float(np.abs(other).max()))
        if not scale:
            continue
        for one, other in _in_parts(values, second[name]):
            most = max(most, float(np.abs(one / scale - other / scale).max()))
    return most


PART = 1 << 20  # a published tensor of a byte each would be eight times as large as numbers


def _in_parts(
    first: NDArray[Any], second: NDArray[Any]
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield corresponding parts of two arrays of one shape as numbers."""
    one, other = first.reshape(-1), second.reshape(-1)
    for start in range(0, one.size, PART):
        part = slice(start, start + PART)
        yield one[part].astype(np.float64), other[part].astype(np.float64)


def _layout(tensors: Tensors) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (values.dtype.str, values.shape) for name, values in tensors.items()}


def _of_refit(claim: RefittedClaim) -> list[Judgement]:
    return _checks(claim, guarded(AGAIN, lambda: check_refit(claim)))


def _of_rerun(claim: RerunClaim) -> list[Judgement]:
    return _checks(claim.refit, guarded(DIFFERENCE, lambda: check_difference(claim)))


def _checks(claim: RefittedClaim, again: Judgement) -> list[Judgement]:
    """Return the checks shared by both classes. again: of the verifier's own fit."""
    shards, probe = claim.shards, claim.probe
    found = [
        check_model_file(claim.published_digest, claim.file_digest),
        *check_pairs({"data": (claim.claimed_data, claim.data)}),
        *check_retention(claim.retained_set, claim.purge),
        *check_pairs({"registration": claim.registration}),
        again,
        *check_pairs({"rows-before": claim.rows_before}),
    ]
    if shards is not None:
        found.append(guarded(UNTOUCHED, lambda: check_untouched(shards)))
    if probe is not None:
        found.append(guarded(PROBE, lambda: check_probe(probe)))
    return found


VERIFIER = CheckingVerifier("exact-retrained", _of_refit)
EXACT = CheckingVerifier("exact", _of_refit)
RERUN = CheckingVerifier("retrained", _of_rerun)
