"""Which verdicts another method could change, and how a rung is named."""

from typing import Any

import pytest

from workers.tasks.network_ladder import is_of_method, label
from workers.verifier.base import Check, Report
from workers.verifier.policy_ladder import Rung


def report(result: Any, *failed: str) -> Report:
    """Return a report of which all passed but what is named."""
    passed = [
        Check(n, name, "", None, "", True) for n, name in enumerate(("model-file", "policy"))
    ]
    return Report(result, (*passed, *(Check(9, name, "", None, "", False) for name in failed)))


@pytest.mark.parametrize(
    "failed",
    [
        ["yeom:auc"],
        ["song-modified-entropy:accuracy", "shokri:tail"],
        ["retained-accuracy"],
        ["test-accuracy", "yeom:tail"],
        ["canary"],
        ["distance:output-kl"],
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
        ["claim"],
    ],
)
def test_what_another_method_would_not_change_is_not(failed: list[str]) -> None:
    assert not is_of_method(report("FAIL", *failed))
    assert not is_of_method(report("FAIL", "yeom:auc", *failed))


@pytest.mark.parametrize(
    ("rung", "words"),
    [
        (Rung("hf-kcu"), "hf-kcu"),
        (
            Rung("puf-special", {"unlearning_rate": 4, "guard": {"trials": 9, "rise": 0.5}}),
            "puf-special(guard.rise=0.5,guard.trials=9,unlearning_rate=4)",
        ),
        (Rung("puf-special", {"guard": None}), "puf-special(guard=null)"),
        (Rung("hf-kcu", {"form": "newton"}), "hf-kcu(form=newton)"),
    ],
)
def test_the_name_of_a_rung_by_hand(rung: Rung, words: str) -> None:
    assert label(rung) == words
