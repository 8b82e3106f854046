"""The registries of measurements on samples that are large enough."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from workers.judge.attacks.attack import Scores
from workers.judge.checks import CheckRoom
from workers.judge.samples.decide import Measurement
from workers.judge.samples.empirical_claim import EmpiricalClaim
from workers.judge.samples.samples import ModelAnswers

Scored = Mapping[str, Scores | str]  # by attack; instead of scores the reason for none


@dataclass(frozen=True, slots=True, eq=False)
class Tested:
    """A claim with the outputs of both versions, and the scores of each attack on them."""

    claim: EmpiricalClaim
    before: ModelAnswers
    after: ModelAnswers
    scored_before: Scored
    scored_after: Scored


Measure = Callable[[Tested], list[Measurement]]
# What must be seen before unlearning: otherwise the tests after it show nothing.
CONTROLS: CheckRoom[Measure] = CheckRoom("workers.judge.samples")
# What must be seen after unlearning. Tests with a margin share the request's alpha.
TESTS: CheckRoom[Measure] = CheckRoom("workers.judge.samples")
# Utility, not forgetting: a wrong pass harms no one's privacy and spends no alpha.
ACCURACIES: CheckRoom[Measure] = CheckRoom("workers.judge.samples")
