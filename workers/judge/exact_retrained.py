"""The verifier of the guarantee `exact-retrained`.

1 model-file    2 data    3 retained-set    4 purge    5 start    6 re-execution
7 rows-before

A model never saw the erased rows if it can be reproduced, bit for bit, from initial weights
drawn without data and from the retained rows alone. The rerun happens elsewhere; here its
results are compared. All rounds must be rerun: if only the step from the old model to one clean
round is forged, a sample of k of n rounds passes with probability 1 - k/n.
"""

from dataclasses import dataclass

from lethe.catalogue import CHECKS
from workers.judge.base import Judgement, PurgeClaim, RetainedSetClaim
from workers.judge.checks import (
    SHA256,
    CheckingVerifier,
    check_model_file,
    check_pairs,
    check_retention,
    guarded,
    judged,
)

RERUN = CHECKS["re-execution"]


@dataclass(frozen=True, slots=True)
class RetrainedClaim:
    """A published model that was retrained on the retained rows. Digests are hex SHA-256.

    file_digest: recomputed from the model file. claimed_data, data: of the training rows, as
    claimed by the training and as stored. claimed_start, start: of the initial weights, as
    claimed and as generated from the registered seed. reexecuted_digest: of the model from the
    verifier's own run of the last reexecuted_rounds of all `rounds`; None if the hardware
    cannot repeat it. answers_missing: client messages claimed to be missing, and left out
    again; answers_allowed: how many may be. environment_equal: whether that run had the
    training's library versions and hardware. rows_before: digests of all rows of the version
    before: as published, and of the stored rows with the removed ones.
    """

    retained_set: RetainedSetClaim
    purge: PurgeClaim
    published_digest: str
    file_digest: str
    reexecuted_digest: str | None
    rounds: int
    reexecuted_rounds: int
    claimed_start: str
    start: str
    claimed_data: str
    data: str
    answers_missing: int
    environment_equal: bool
    answers_allowed: int
    rows_before: tuple[str, str]


def check_rerun(claim: RetrainedClaim) -> Judgement:
    """Judge the re-execution: another result on equal hardware refutes, none does not."""
    total, again = claim.rounds, claim.reexecuted_rounds
    counts = (total, again, claim.answers_missing, claim.answers_allowed)
    if any(isinstance(count, bool) or not isinstance(count, int) for count in counts):
        raise TypeError("rounds are counted in whole numbers")
    found, refuted = claim.reexecuted_digest, False
    ran = f"{again} of {total} rounds"
    answered = claim.answers_missing >= 0 and 0 <= claim.answers_allowed < 1 << 32
    if total < 1 or not 0 <= again <= total or not answered:
        problem, refuted = "the counts of rounds are impossible", True
    elif found is not None and not SHA256.fullmatch(found):
        problem, refuted = "a digest is not SHA-256 in lower-case hex", True
    elif claim.answers_missing > claim.answers_allowed:
        problem = (
            f"{claim.answers_missing} answers of clients are missing, "
            f"{claim.answers_allowed} may be"
        )
    elif found is None:
        problem = "the rounds could not be repeated: the hardware is not deterministic"
    elif found != claim.published_digest and claim.environment_equal is True:
        problem, refuted = f"{ran} end with another model", True
    elif found != claim.published_digest:
        problem = f"{ran} end with another model, in another environment"
    elif again < total:
        problem = (
            f"only {ran}: one forged round escapes with a chance of {1 - again / total:.4f}"
        )
    else:
        left_out = (
            f", {claim.answers_missing} answers left out" if claim.answers_missing else ""
        )
        return judged(RERUN, f"{ran}{left_out}, sha256 {found}", passed=True)
    return judged(RERUN, problem, passed=False, undecided=not refuted)


def checks_of(claim: RetrainedClaim) -> list[Judgement]:
    """Judge erasure by retraining from its re-execution."""
    return [
        check_model_file(claim.published_digest, claim.file_digest),
        *check_pairs({"data": (claim.claimed_data, claim.data)}),
        *check_retention(claim.retained_set, claim.purge),
        *check_pairs({"start": (claim.claimed_start, claim.start)}),
        guarded(RERUN, lambda: check_rerun(claim)),
        *check_pairs({"rows-before": claim.rows_before}),
    ]


VERIFIER = CheckingVerifier("exact-retrained", checks_of)
