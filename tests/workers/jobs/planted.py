"""A verifier of approximations whose tests of forgetting come out as planted."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from lethe.certificates.statement import CheckPart
from workers.families.network import empirical as network_empirical
from workers.judge.base import Report
from workers.judge.samples.empirical import VERIFIER
from workers.judge.samples.empirical_claim import EmpiricalClaim

# What is judged of identity, not of samples: it stays as the honest verifier finds it.
HONEST = ("model-file", "policy", "retained-set", "purge")
PAIRS = ("rows-before", "rows-after", "model-before")


@dataclass
class Planted:
    """Says of one judgement after the other what was planted, PASS once that is used up.

    An outcome is a check's name, which is then refuted, or INCONCLUSIVE.
    """

    outcomes: list[str]
    seen: list[EmpiricalClaim] = field(default_factory=list)
    told: Callable[[], None] = lambda: None
    id: str = VERIFIER.id
    version: str = VERIFIER.version

    def verify(self, claim: EmpiricalClaim) -> Report:
        """Judge identity honestly and forgetting as planted."""
        self.seen.append(claim)
        self.told()
        found = [c for c in VERIFIER.verify(claim).checks if c.name in (*HONEST, *PAIRS)]
        checks = [replace(check, number=number) for number, check in enumerate(found, 1)]
        outcome = self.outcomes.pop(0) if self.outcomes else "PASS"
        if not all(check.passed for check in checks):
            return Report("FAIL", tuple(checks))
        name = {"PASS": "yeom:auc", "INCONCLUSIVE": "control:yeom"}.get(outcome, outcome)
        number = len(checks) + 1
        checks.append(
            CheckPart(number, name, "planted", "planted", None, "planted", outcome == "PASS")
        )
        result: Any = outcome if outcome in ("PASS", "INCONCLUSIVE") else "FAIL"
        return Report(result, tuple(checks))


def plant(patch: pytest.MonkeyPatch, *outcomes: str) -> Planted:
    """Have the approximations that are judged from now on come out so."""
    planted = Planted(list(outcomes))
    patch.setattr(network_empirical, "VERIFIER", planted)
    return planted
