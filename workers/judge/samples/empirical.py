"""The verifier of the guarantee `empirical-approximate`.

1 model-file    2 policy    3 retained-set    4 purge    5 samples
then controls before unlearning, attacks after it, distances, the canary, accuracy, the rows and
the model tested, the trainings for testing, and the silos.

An audit bounds from below what a model remembers: it can refute forgetting and never prove it.
PASS says that attacks which found the forget rows before unlearning, on samples with sufficient
power, are within tau of chance after it; the probability of a wrong PASS is at most the spent
alpha. It says nothing about attacks that were not run.
"""

from lethe.catalogue import CHECKS
from workers.errors import RefusedError
from workers.judge.base import Judgement
from workers.judge.checks import (
    RETAINED_SET,
    CheckingVerifier,
    check_model_file,
    check_pairs,
    check_retention,
    guarded,
    judged,
)
from workers.judge.inference.intervals import spell, spent
from workers.judge.policy.document import digest
from workers.judge.policy.policy import Policy
from workers.judge.samples import membership, samples
from workers.judge.samples.decide import ACCURACIES, CONTROLS, TESTS, Tested, control, decide
from workers.judge.samples.empirical_claim import EmpiricalClaim
from workers.judge.silos import are_missing, check_silos, of_some, withheld

POLICY, ATTACKS = CHECKS["policy"], CHECKS["attacks"]
PAIRS = ("rows-before", "rows-after", "model-before")
MIN_SEED = 16  # bytes
TRAININGS = CHECKS["trainings"]


def check_policy(claim: EmpiricalClaim) -> Judgement:
    """Judge that this is the registered policy, and name the alpha that this request spends."""
    policy = claim.policy
    if not isinstance(policy, Policy) or digest(policy) != claim.policy_digest:
        return judged(POLICY, "not the policy whose digest was registered", passed=False)
    alpha = spent(policy.alpha, claim.requests_before)
    seeded = isinstance(claim.seed, bytes) and len(claim.seed) >= MIN_SEED
    value = (
        f"request {claim.requests_before + 1} spends {spell(alpha)} of alpha {policy.alpha:g}; "
        f"attacks {', '.join(policy.attacks)}; tau {policy.tau:g}; "
        f"seed {claim.seed.hex() if seeded else 'missing or short'}"
    )
    return judged(POLICY, value, passed=seeded, undecided=not seeded)


def check_rows(claim: EmpiricalClaim) -> list[Judgement]:
    """Return check 5, and the statistics if it passes. Raises what a malformed claim raises."""
    alpha = spent(claim.policy.alpha, claim.requests_before)
    try:
        before, after = samples.read(claim)
    except RefusedError as reason:
        return [samples.refused(str(reason), undecided=False), _not_run()]
    missing = samples.without_scores(claim)
    if missing is not None:
        return [missing, _not_run()]
    try:
        drawn = samples.draw(claim, before, after)
    except RefusedError as reason:
        return [samples.refused(str(reason), undecided=True), _not_run()]
    fifth = samples.check_samples(claim, drawn, alpha)
    if not fifth.check.passed:
        return [fifth, _not_run()]
    policy = claim.policy
    tested = Tested(
        claim,
        before,
        after,
        membership.scored(policy, drawn.before),
        membership.scored(policy, drawn.after),
    )
    controls = [one for _, measure in CONTROLS.functions() for one in measure(tested)]
    tests = [one for _, measure in TESTS.functions() for one in measure(tested)]
    accuracies = [one for _, measure in ACCURACIES.functions() for one in measure(tested)]
    return [
        fifth,
        *control(controls, alpha),
        *decide(tests, alpha),
        *decide(accuracies, policy.alpha),
    ]


def _not_run() -> Judgement:
    value = "not run: the samples do not allow it"
    return judged(ATTACKS, value, passed=False, undecided=True)


def _guarded_rows(claim: EmpiricalClaim) -> list[Judgement]:
    found: list[Judgement] = []

    def run() -> Judgement:
        first, *rest = check_rows(claim)
        found.extend(rest)
        return first

    return [guarded(samples.SPEC, run), *found]


def checks_of(claim: EmpiricalClaim) -> list[Judgement]:
    """Judge approximate erasure by pre-registered attacks, each with its power."""
    return [
        check_model_file(claim.published_digest, claim.model, finite=claim.finite),
        guarded(POLICY, lambda: check_policy(claim)),
        *_of_rows(claim),
        *check_trainings(claim),
        *check_silos(claim.silos),
    ]


def _of_rows(claim: EmpiricalClaim) -> list[Judgement]:
    if are_missing(claim.silos):
        return _of_some_rows(claim)
    return [
        *check_retention(claim.retained_set, claim.purge),
        *_guarded_rows(claim),
        *check_pairs({name: getattr(claim, name.replace("-", "_")) for name in PAIRS}),
    ]


def _of_some_rows(claim: EmpiricalClaim) -> list[Judgement]:
    _, purged = check_retention(claim.retained_set, claim.purge)
    return [
        withheld(RETAINED_SET),
        # An erased row that is still stored counts, whichever silo is silent.
        *of_some([purged]),
        withheld(samples.SPEC),
        withheld(ATTACKS),
        *(withheld(CHECKS[name]) for name in PAIRS),
    ]


def check_trainings(claim: EmpiricalClaim) -> list[Judgement]:
    """Judge that there are as many models as the policy requires, if it requires any.

    They have seen erased rows, so they are destroyed before the verdict; their number and cost
    stay on the certificate. If they were not trained, nothing is shown and nothing refuted.
    """
    policy = claim.policy
    if not isinstance(policy, Policy) or not (policy.references or policy.distances):
        return []
    return [guarded(TRAININGS, lambda: _check_trainings(claim, policy))]


def _check_trainings(claim: EmpiricalClaim, policy: Policy) -> Judgement:
    trained, found, missing = claim.trained, [], False
    if policy.references:
        models = 0 if claim.references is None else len(claim.references.logits)
        missing = models != policy.references
        cost = 0 if trained is None else trained.references
        found.append(f"{models} reference models, each row in half of them: {cost} operations")
    if policy.distances:
        models, cost = int(claim.retrained is not None), trained.retrained if trained else 0
        missing = missing or not models
        found.append(f"{models} model retrained without the erased rows: {cost} operations")
    value = "; ".join(found)
    if trained is not None and trained.missing:
        value += f"; not trained: {trained.missing}"
    return judged(TRAININGS, value, passed=not missing, undecided=missing)


VERIFIER = CheckingVerifier("empirical-approximate", checks_of)
