"""Trials of the class `exact`: every provider once on each of many ridge problems."""

from benchmarks.soundness.judging import tally
from benchmarks.soundness.rates import Tally
from benchmarks.soundness.ridge_cheats import PROVIDERS
from benchmarks.soundness.ridge_problem import make_problem
from workers.judge.base import Report
from workers.judge.ridge.verdict import EXACT as VERIFIER

SETTING = "ridge problems"
BLOCK = 50  # problems measured at a time


def measure(start: int) -> list[Tally]:
    """Return the verdicts on all providers in problems start … start + BLOCK - 1.

    Each has rows of its own, and every provider is tried once on it.
    """
    found: dict[str, list[Report]] = {name: [] for name in PROVIDERS}
    for seed in range(start, start + BLOCK):
        problem = make_problem(seed)
        for name, provider in PROVIDERS.items():
            found[name].append(VERIFIER.verify(provider(problem)))
    return [tally(VERIFIER.id, SETTING, name, None, reports) for name, reports in found.items()]
