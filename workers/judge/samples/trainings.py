"""The judge's own trainings: whether they were done, and their cost.

A verdict by reference models depends on them. They have seen erased rows, so they are destroyed
before the verdict; their number and cost stay on the certificate. If they were not trained,
nothing is shown and nothing refuted.
"""

from lethe.catalogue import CHECKS
from workers.judge.base import Judgement
from workers.judge.checks import guarded, judged
from workers.judge.policy.policy import Policy
from workers.judge.samples.empirical_claim import EmpiricalClaim

SPEC = CHECKS["trainings"]


def check_trainings(claim: EmpiricalClaim) -> list[Judgement]:
    """Judge that there are as many models as the policy requires, if it requires any."""
    policy = claim.policy
    if not isinstance(policy, Policy) or not (policy.references or policy.distances):
        return []
    return [guarded(SPEC, lambda: _check(claim, policy))]


def _check(claim: EmpiricalClaim, policy: Policy) -> Judgement:
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
    return judged(SPEC, value, passed=not missing, undecided=missing)
