"""A verifier of approximations with planted outcomes of its tests of forgetting."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from lethe.certificates.statement import CheckPart
from workers.families.network import empirical as network_empirical
from workers.judge.base import Report
from workers.judge.samples.empirical import VERIFIER
from workers.judge.samples.empirical_claim import EmpiricalClaim

# Checks of identity, not of samples: they keep the honest verifier's results.
HONEST = ("model-file", "policy", "retained-set", "purge")
PAIRS = ("rows-before", "rows-after", "model-before")


@dataclass
class Planted:
    """Returns the planted outcomes one after another, then PASS.

    An outcome is the name of a check, which is then refuted, or INCONCLUSIVE.
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
    """Judge approximations with these outcomes from now on."""
    planted = Planted(list(outcomes))
    patch.setattr(network_empirical, "VERIFIER", planted)
    return planted
