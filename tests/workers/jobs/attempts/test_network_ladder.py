"""Which verdicts another method could change, and how an attempt is named."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from app.service.queue import DEADLINE_MARGIN
from lethe.certificates.statement import CheckPart
from models.database.types import utcnow
from tests import small_network
from workers.families.network.config import NetworkConfig
from workers.families.network.ladder import (
    LATE,
    AttemptLimits,
    is_of_method,
    judging_flops,
    label,
)
from workers.judge.base import Report
from workers.judge.policy.policy import LadderStep, Policy
from workers.methods.network.estimate import Sizes, retraining_flops
from workers.methods.network.retrain import Retrain
from workers.training.fedavg.config import TrainingConfig
from workers.training.networks.registry import network


def report(result: Any, *failed: str) -> Report:
    """Report with all checks passed except the named ones."""
    passed = [
        CheckPart(n, name, "value", "", None, "", True)
        for n, name in enumerate(("model-file", "policy"))
    ]
    return Report(
        result,
        (*passed, *(CheckPart(9, name, "value", "", None, "", False) for name in failed)),
    )


@pytest.mark.parametrize(
    "failed",
    [
        ["yeom:auc"],
        ["song-modified-entropy:accuracy", "shokri:tail"],
        ["retained-accuracy"],
        ["test-accuracy", "yeom:tail"],
        ["canary"],
        ["distance:output-kl"],
        ["lira:auc", "rmia:tail"],
    ],
)
def test_a_refuted_test_of_forgetting_or_use_is_the_methods(failed: list[str]) -> None:
    assert is_of_method(report("FAIL", *failed))
    assert not is_of_method(report("INCONCLUSIVE", *failed))


@pytest.mark.parametrize(
    "failed",
    [
        ["control:yeom"],
        ["samples", "attacks"],
        ["control:canary"],
        ["purge"],
        ["model-before"],
        ["rows-before"],
        ["policy"],
        ["trainings"],
        ["claim"],
    ],
)
def test_what_another_method_would_not_change_is_not(failed: list[str]) -> None:
    assert not is_of_method(report("FAIL", *failed))
    assert not is_of_method(report("FAIL", "yeom:auc", *failed))


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (LadderStep("hf-kcu"), "hf-kcu"),
        (
            LadderStep(
                "puf-special", {"unlearning_rate": 4, "guard": {"trials": 9, "rise": 0.5}}
            ),
            "puf-special(guard.rise=0.5,guard.trials=9,unlearning_rate=4)",
        ),
        (LadderStep("puf-special", {"guard": None}), "puf-special(guard=null)"),
        (LadderStep("hf-kcu", {"form": "newton"}), "hf-kcu(form=newton)"),
    ],
)
def test_the_name_of_an_attempt_by_hand(attempt: LadderStep, words: str) -> None:
    assert label(attempt) == words


CONFIG = NetworkConfig(
    network("logistic", small_network.SHAPE), TrainingConfig(rounds=3, seed=7), 0.25
)
PLAIN = Policy(("yeom",), tau=0.1, minimum_pairs=400)


def test_what_the_judge_of_an_attempt_trains_is_reckoned() -> None:
    def training(rows: int) -> int:
        return retraining_flops(CONFIG.network, CONFIG.training, rows)

    sizes = Sizes(retained=100, forget=10, validation=30)
    assert judging_flops(CONFIG, PLAIN, sizes) == 0
    distances = replace(PLAIN, distances={"output-kl": 0.1})
    assert judging_flops(CONFIG, distances, sizes) == training(100)
    # In each reference model all retained rows, and half of the 40 others that are scored.
    both = replace(distances, attacks=("lira",), references=4)
    assert judging_flops(CONFIG, both, sizes) == 4 * training(120) + training(100)


@pytest.mark.parametrize(("judging", "why"), [(0, ""), (100, f"skipped, {LATE}")])
def test_an_attempt_whose_judge_would_train_past_the_deadline_is_skipped(
    judging: int, why: str
) -> None:
    # At one second per operation, the attempt without an estimate, the retraining and its
    # repetition take 3,000 seconds.
    now = utcnow()
    due = now + DEADLINE_MARGIN + timedelta(seconds=3050)
    sizes = Sizes(100, 10, 30)
    limits = AttemptLimits(
        CONFIG, sizes, now, due, whole=1000, left=10**9, judging=judging, pace=1.0
    )
    assert limits.forbid(Retrain()) == why
