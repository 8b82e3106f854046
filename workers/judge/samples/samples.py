"""Check 5: the samples are large enough, and drawn by the verifier's seed.

Below the minimum nothing is tested at all: an attack on a few rows can be trusted neither to
find something nor to find nothing.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lethe.catalogue import CHECKS
from lethe.pairs import RESERVED
from workers.errors import RefusedError
from workers.judge.attacks.attack import References, Setting
from workers.judge.attacks.lira import FlagMatrix
from workers.judge.attacks.outputs import Outputs, log_odds
from workers.judge.attacks.song import ENOUGH
from workers.judge.base import Judgement
from workers.judge.checks import judged
from workers.judge.inference.intervals import Vector, spell
from workers.judge.inference.sizes import accuracy_power, auc_power
from workers.judge.samples.empirical_claim import EmpiricalClaim

SPEC = CHECKS["samples"]
Places = NDArray[np.int64]
STEPS = 64  # sizes tried, as fractions of the forget set


@dataclass(frozen=True, slots=True, eq=False)
class Matching:
    """Row numbers: pairs of forget and unseen rows (m,) each, and the other pool rows.

    tested: the share of the forget set that has partners. share: of the rows wanted for a
    sample with the forget set's own mix, those that have one.
    """

    forget: Places
    unseen: Places
    others: Places
    tested: float
    share: float


def match(
    forget: tuple[ArrayLike, ArrayLike],
    pool: tuple[ArrayLike, ArrayLike],
    seed: bytes,
    coverage: float,
) -> Matching:
    """Pair forget rows with pool rows; each side is its (clients, labels), one per row.

    An attack that distinguishes forget rows from rows of other people, or of other classes, has
    found a shift between distributions and shows nothing about memory. So each tested forget
    row gets a partner from its own stratum (client, label). If the pool is too small, a random
    part of the forget set with nearly the same mix is tested.

    Takes the largest sample of the forget set's mix of which a share `coverage` finds partners.
    Raises RefusedError if there is none.
    """
    strata = _strata(forget, pool)
    wanted, offered = strata
    kinds = 1 + max(int(wanted.max(initial=-1)), int(offered.max(initial=-1)))
    order = shuffled(len(offered), seed, b"pool")
    reserved, candidates = np.split(order, [len(order) // RESERVED])
    there = np.bincount(wanted, minlength=kinds)
    here = np.bincount(offered[candidates], minlength=kinds)
    for step in range(STEPS, 0, -1):
        target = (there * step + STEPS // 2) // STEPS
        pairs = np.minimum(target, here)
        if pairs.sum() and pairs.sum() >= coverage * target.sum():
            break
    else:
        raise RefusedError(
            "too few unseen rows of the same clients and labels: hold out more of them"
        )
    tested = _first_of_each(wanted, shuffled(len(wanted), seed, b"forget"), pairs)
    partners = _first_of_each(offered, candidates, pairs)
    spare = np.setdiff1d(candidates, partners)
    return Matching(
        tested,
        partners,
        np.sort(np.concatenate([reserved, spare])),
        len(tested) / len(wanted),
        float(pairs.sum() / target.sum()),
    )


def shuffled(size: int, seed: bytes, purpose: bytes) -> Places:
    """Return 0 … size - 1 in an order determined by SHAKE-256 of the seed, on any machine."""
    label = b"lethe/sample/v1\0" + len(purpose).to_bytes(4, "big") + purpose
    stream = hashlib.shake_256(label + seed).digest(8 * size)
    return np.argsort(np.frombuffer(stream, "<u8"), kind="stable")


def _strata(
    forget: tuple[ArrayLike, ArrayLike], pool: tuple[ArrayLike, ArrayLike]
) -> tuple[Places, Places]:
    """Return the stratum of each forget row and of each pool row, as one numbering."""
    size = len(np.asarray(forget[0]))
    clients, labels = (
        np.unique(np.concatenate([one, two]), return_inverse=True)[1]
        for one, two in zip(forget, pool, strict=True)
    )
    both = clients.astype(np.int64) * (int(labels.max(initial=0)) + 1) + labels
    dense = np.unique(both, return_inverse=True)[1].astype(np.int64)
    return dense[:size], dense[size:]


def _first_of_each(strata: Places, order: Places, counts: Places) -> Places:
    """Return, grouped by stratum, the first rows of `order` up to the count of each."""
    grouped = order[np.argsort(strata[order], kind="stable")]
    there = np.bincount(strata[order], minlength=len(counts))
    starts = np.repeat(np.cumsum(there) - there, there)
    rank = np.arange(len(grouped)) - starts
    return grouped[rank < counts[strata[grouped]]]


@dataclass(frozen=True, slots=True, eq=False)
class ModelAnswers:
    """The outputs of one version of the model on all rows of the claim."""

    forget: Outputs
    pool: Outputs
    retained: Outputs


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Both versions under the same attack conditions, on the same rows."""

    before: Setting
    after: Setting
    matching: Matching


def read(claim: EmpiricalClaim) -> tuple[ModelAnswers, ModelAnswers]:
    """Return the outputs before and after. Raises RefusedError for anything malformed."""
    before = ModelAnswers(
        Outputs(claim.forget_before, claim.forget_labels),
        Outputs(claim.pool_before, claim.pool_labels),
        Outputs(claim.retained_before, claim.retained_labels),
    )
    after = ModelAnswers(
        Outputs(claim.forget_after, claim.forget_labels),
        Outputs(claim.pool_after, claim.pool_labels),
        Outputs(claim.retained_after, claim.retained_labels),
    )
    sides = (before.forget, before.pool, before.retained, after.forget, after.pool)
    if any(side.logits.shape[1] != after.retained.logits.shape[1] for side in sides):
        raise RefusedError("the logits are not all of the same classes")
    for clients, rows in (
        (claim.forget_clients, before.forget),
        (claim.pool_clients, before.pool),
    ):
        if clients.shape != (len(rows),):
            raise RefusedError("there must be exactly one client for each row")
    return before, after


def draw(claim: EmpiricalClaim, before: ModelAnswers, after: ModelAnswers) -> Samples:
    """Match non-members by the claim's seed. Raises RefusedError if there are too few.

    The seed is combined with the digest that was published before it was drawn. Attacks see the
    later version at the sharpness of the earlier one; all other measurements do not.
    """
    matching = match(
        (claim.forget_clients, claim.forget_labels),
        (claim.pool_clients, claim.pool_labels),
        claim.seed + claim.published_digest.encode(),
        claim.policy.coverage,
    )
    references = _references(claim, matching)
    after = _at_temperature_of(before, after)
    sides = [
        Setting(
            answers.forget.only(matching.forget),
            answers.pool.only(matching.unseen),
            answers.retained,
            answers.pool.only(matching.others),
            references,
        )
        for answers in (before, after)
    ]
    return Samples(sides[0], sides[1], matching)


def _at_temperature_of(wanted: ModelAnswers, answers: ModelAnswers) -> ModelAnswers:
    """Return answers with each class's logits scaled by one factor, to equal sharpness.

    Dividing the last layer by 1e20 changes no prediction and no memory, but makes all
    probabilities equal in float64. An attacker with the model can undo that. The factor is per
    class, since otherwise a single blown-up output would make all others look flat; it uses the
    margin of the first answer over the second, since otherwise an answer that is never given
    could do the same.
    """
    pairs = [_sharpness(of.retained) for of in (wanted, answers)]
    known = (pairs[0] > 0) & (pairs[1] > 0)
    to, by = (np.where(known, part, 1.0)[:, None] for part in pairs)

    def scaled(of: Outputs) -> Outputs:
        with np.errstate(over="ignore"):
            logits = of.logits / by[of.labels] * to[of.labels]
        return Outputs(np.clip(logits, -1e300, 1e300), of.labels)

    return ModelAnswers(scaled(answers.forget), scaled(answers.pool), scaled(answers.retained))


def _sharpness(of: Outputs) -> Vector:
    """Return for each class the median margin of the first answer over the second.

    The median over all rows if a class has too few for a separate threshold; 0 without rows, or
    if most rows have two equal first answers.
    """
    best = np.sort(of.logits, axis=1)[:, -2:]
    margins = best[:, 1] / 2 - best[:, 0] / 2  # halves: the difference could exceed float64
    found = np.full(of.logits.shape[1], np.median(margins) if len(of) else 0.0)
    for label, count in enumerate(np.bincount(of.labels, minlength=len(found))):
        if count >= ENOUGH:
            found[label] = np.median(margins[of.labels == label])
    return found


def check_samples(claim: EmpiricalClaim, samples: Samples, alpha: float) -> Judgement:
    """Judge the sizes. Too small samples are undecided, never refuted."""
    policy, matching = claim.policy, samples.matching
    pairs, level = len(matching.forget), alpha / policy.tests()
    powers = accuracy_power(2 * pairs, policy.tau, level), auc_power(pairs, policy.tau, level)
    retained, others = len(samples.after.members), len(matching.others)
    enough = (
        pairs >= policy.minimum_pairs
        and retained >= policy.minimum_retained
        and others >= policy.minimum_others
        and min(powers) >= policy.power
    )
    tested = f"{matching.tested:.1%} of {len(claim.forget_labels)} forget rows"
    value = (
        f"{covered(claim)}; {pairs} pairs of equal client and label, testing {tested}; "
        f"{retained} retained, {others} other unseen rows; power at level {spell(level)}: "
        f"accuracy {powers[0]:.4f}, AUC {powers[1]:.4f}"
    )
    threshold = (
        f"at least {policy.minimum_pairs} pairs, {policy.minimum_retained} retained, "
        f"{policy.minimum_others} other unseen rows; power {policy.power:g} to show "
        f"|x - 1/2| < {policy.tau:g} where it is 0"
    )
    return judged(SPEC, value, passed=enough, threshold=threshold, undecided=not enough)


def coverage(claim: EmpiricalClaim) -> tuple[int, int]:
    """Return how many records were erased, and how many of them have scores."""
    return len(set(claim.retained_set.erased)), len(claim.forget_labels) + claim.unseen


def covered(claim: EmpiricalClaim) -> str:
    """Return the coverage as text, as in certificates."""
    erased, scored = coverage(claim)
    return f"{scored} of {erased} erased records have scores, {claim.unseen} of them held out"


def without_scores(claim: EmpiricalClaim) -> Judgement | None:
    """Return why nothing is tested if an erased record has no scores, None if all have.

    A row that is left out may be the one that is remembered: findings on the others say nothing
    about it, and refute nothing either. More rows than records are a lie.
    """
    erased, scored = coverage(claim)
    if erased == scored:
        return None
    return refused(covered(claim), undecided=scored < erased)


def refused(reason: str, *, undecided: bool) -> Judgement:
    """Return the check of samples that could not be drawn."""
    return judged(SPEC, reason, passed=False, undecided=undecided)


def _references(claim: EmpiricalClaim, matching: Matching) -> References | None:
    if claim.references is None:
        return None
    logits, included = claim.references.logits, claim.references.included
    labels = np.concatenate([claim.forget_labels, claim.pool_labels])
    if logits.ndim != 3 or logits.shape[:2] != included.shape or included.dtype != np.bool_:
        raise RefusedError("the reference models need one flag for each model and row")
    if logits.shape[1] != len(labels):
        raise RefusedError("the reference models must answer all forget and pool rows")
    shift = len(claim.forget_labels)
    rows = np.concatenate([matching.forget, matching.unseen + shift, matching.others + shift])
    odds = [log_odds(Outputs(model[rows], labels[rows])) for model in logits]
    return References(np.array(odds).reshape(len(logits), len(rows)), included[:, rows])


# Which reference model is trained on which row: half of the models per row, drawn by the seed.
#
# The draw is a function of the verifier's seed, which did not exist when the judged model was
# published, and of the salted digest of each row. So nobody can choose it, and anyone with the
# scores file can repeat it. Each row is in exactly half of the models, rounded down: with coin
# flips some of many rows would be in fewer than the two that LiRA needs.
LABEL = b"lethe/references/v1\0"


def halves(seed: bytes, models: int, rows: Sequence[bytes]) -> FlagMatrix:
    """Return (models, n) bool: which model is trained on which of n rows, by their digests."""
    included = np.zeros((models, len(rows)), dtype=np.bool_)
    prefix = LABEL + len(seed).to_bytes(4, "big") + seed
    for place, row in enumerate(rows):
        stream = hashlib.shake_256(prefix + row).digest(8 * models)
        order = np.argsort(np.frombuffer(stream, "<u8"), kind="stable")
        included[order[: models // 2], place] = True
    return included
