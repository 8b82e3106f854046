"""Cheats who claim to have trained anew: each is refused by the check that should notice it."""

import pytest
import torch

from benchmarks.soundness.providers import is_honest
from benchmarks.soundness.training_cheats import PROVIDERS
from benchmarks.soundness.training_problem import TrainingProblem, make_problem
from workers.judge.exact_retrained import VERIFIER

torch.set_num_threads(1)

CHEATS = sorted(name for name in PROVIDERS if not is_honest(name))

# Those whose training can be repeated: only what was published before contradicts them.
CONSISTENT = {"dropped record": "retained-set", "swapped rows": "rows-before"}


@pytest.fixture(scope="module")
def problem() -> TrainingProblem:
    return make_problem(0)


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_refused_by_its_check(problem: TrainingProblem, name: str) -> None:
    report = VERIFIER.verify(PROVIDERS[name](problem))
    failed = {check.name for check in report.checks if not check.passed}
    assert report.result == "FAIL"
    assert failed - {"data"} == {CONSISTENT.get(name, "re-execution")}


def test_the_honest_retraining_is_accepted(problem: TrainingProblem) -> None:
    assert VERIFIER.verify(PROVIDERS["honest retrain"](problem)).result == "PASS"


def test_a_cheat_never_publishes_the_true_model(problem: TrainingProblem) -> None:
    true = PROVIDERS["honest retrain"](problem).published_digest
    assert true not in {PROVIDERS[name](problem).published_digest for name in CHEATS}
