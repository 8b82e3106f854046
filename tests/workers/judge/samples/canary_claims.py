"""Claims with a canary whose trigger works as often as a test requires."""

from dataclasses import replace

import numpy as np

from tests.workers.judge.empirical_claims import CLASSES, POLICY, simulated
from workers.arrays import Matrix
from workers.judge.policy.document import digest
from workers.judge.policy.policy import Policy
from workers.judge.samples.canary import CanaryClaim
from workers.judge.samples.empirical_claim import EmpiricalClaim

TARGET = 1
LIMITED = replace(POLICY, canary_limit=0.3)
HONEST = simulated(1)
STAMPED = int((HONEST.pool_labels != TARGET).sum())


def answers(share: float) -> Matrix:
    """Return logits that predict the target on this share of rows, class 0 on the others."""
    fires = np.arange(STAMPED) < round(share * STAMPED)
    return np.eye(CLASSES)[np.where(fires, TARGET, 0)]


def with_canary(
    before: float,
    after: float,
    claim: EmpiricalClaim = HONEST,
    policy: Policy = LIMITED,
    leaving: int = 40,
    staying: int = 0,
) -> EmpiricalClaim:
    """Return the claim with a trigger that works on these shares of the stamped rows."""
    canary = CanaryClaim(TARGET, answers(before), answers(after), leaving, staying)
    return replace(claim, policy=policy, policy_digest=digest(policy), canary=canary)
