"""The page of noisy fine-tuning is that of its JSON, and says what the JSON shows."""

import json
from pathlib import Path

import pytest

from benchmarks.noisy_finetuning import EPSILONS, HEAD, OUT, WHOLE, BudgetRow, page, steps_of
from workers.errors import RefusedError
from workers.judge.certified.noisy import NoisyTerms, smallest_delta, spent
from workers.training.fedavg.noisy import check_size

DOCUMENT = json.loads((OUT / "noisy-finetuning.json").read_text())
ROWS = [BudgetRow(**row) for row in DOCUMENT["rows"]]


def test_the_page_is_made_of_the_json() -> None:
    assert Path(OUT / "noisy-finetuning.md").read_text() == page(DOCUMENT)


@pytest.mark.parametrize("named", [HEAD, WHOLE])
def test_what_the_page_says_of_the_figures(named: object) -> None:
    own = [row for row in ROWS if row.network == getattr(named, "id", None)]
    retrained = {row.rounds: row.accuracy or 0.0 for row in own if row.method == "retrain"}
    noisy = [row for row in own if row.method == "noisy-finetuning"]
    assert {row.epsilon for row in noisy} == set(EPSILONS)
    for row in noisy:
        if row.accuracy is None:
            assert named == WHOLE
            assert row.rounds
        elif not row.rounds:  # nothing of the model is left
            assert row.accuracy < 0.3
        else:
            assert row.accuracy <= retrained[row.rounds] + 0.03


def test_each_sigma_is_one_that_the_judge_accepts() -> None:
    for row in ROWS:
        if row.epsilon is None or row.start_norm is None or row.sigma is None:
            continue
        chosen = steps_of(row.epsilon, row.start_norm, row.rounds)
        assert row.sigma == pytest.approx(chosen.sigma, rel=1e-12)
        terms = NoisyTerms(
            chosen.steps,
            chosen.start_norm,
            chosen.gradient_norm,
            chosen.learning_rate,
            chosen.pull,
            row.epsilon,
            1e-5,
            1,
        )
        assert smallest_delta(spent(terms, row.sigma), row.epsilon) <= 1e-5


def test_the_whole_network_is_refused() -> None:
    with pytest.raises(RefusedError, match="at most 10000 parameters"):
        check_size(WHOLE)
    check_size(HEAD)
