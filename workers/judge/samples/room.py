"""Where the files of this room register what is measured on samples that are large enough."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from workers.judge.attacks.attack import Scores
from workers.judge.checks import CheckRoom
from workers.judge.samples.decide import Measurement
from workers.judge.samples.empirical_claim import EmpiricalClaim
from workers.judge.samples.samples import ModelAnswers

Scored = Mapping[str, Scores | str]  # by attack; in place of scores the reason for none


@dataclass(frozen=True, slots=True, eq=False)
class Tested:
    """A claim with the answers of both versions, and the scores of each attack on them."""

    claim: EmpiricalClaim
    before: ModelAnswers
    after: ModelAnswers
    scored_before: Scored
    scored_after: Scored


Measure = Callable[[Tested], list[Measurement]]
# What must be seen before unlearning, or the tests after it show nothing.
CONTROLS: CheckRoom[Measure] = CheckRoom("workers.judge.samples")
# What must be seen after it. Those with a margin share the request's alpha.
TESTS: CheckRoom[Measure] = CheckRoom("workers.judge.samples")
# Use, not forgetting: a wrong pass harms nobody's privacy and spends no alpha.
ACCURACIES: CheckRoom[Measure] = CheckRoom("workers.judge.samples")
