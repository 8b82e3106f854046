"""Trials of the class `exact-retrained`: a verifier runs tiny trainings again."""

from benchmarks.soundness.judging import tally
from benchmarks.soundness.rates import Tally
from benchmarks.soundness.training_cheats import PROVIDERS
from benchmarks.soundness.training_problem import make_problem
from workers.judge.base import Report
from workers.judge.exact_retrained import VERIFIER

SETTING = "tiny trainings"
BLOCK = 10  # problems measured at a time


def measure(start: int) -> list[Tally]:
    """Return the verdicts on all providers in problems start … start + BLOCK - 1.

    Each has rows of its own. The verifier's run on the true retained rows is made once a
    problem: it is the same for all who claim to have trained on them.
    """
    found: dict[str, list[Report]] = {name: [] for name in PROVIDERS}
    for seed in range(start, start + BLOCK):
        problem = make_problem(seed)
        for name, provider in PROVIDERS.items():
            found[name].append(VERIFIER.verify(provider(problem)))
    return [tally(VERIFIER.id, SETTING, name, None, reports) for name, reports in found.items()]
