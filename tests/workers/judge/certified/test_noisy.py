"""Noisy fine-tuning is judged by its repetition, its key and its accounting."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from tests.workers.judge.claims import purge_claim, retained_set_claim
from workers.judge import registry
from workers.judge.certified.noisy import NoisyClaim, NoisyTerms
from workers.methods.certified.noisy_finetuning import Promise, shift_squares, sigma_for

VERIFIER = registry.get("certified-approximate")
KEY = bytes(range(32))
TERMS = NoisyTerms(4, 0.1, 0.05, 0.5, 0.1, 1.0, 1e-5, 3)
SIGMA = sigma_for(Promise(1.0, 1e-5, 3), shift_squares(4, 0.1, 0.05, 0.5, 0.1))
NAMES = ["model-file", "data", "retained-set", "purge", "re-execution", "noise", "budget"]
NAMES += ["registration", "rows-before", "model-before"]

TRUE = NoisyClaim(
    retained_set=retained_set_claim(),
    purge=purge_claim(),
    published_digest="12" * 32,
    file_digest="12" * 32,
    claimed_data="ab" * 32,
    data="ab" * 32,
    repeated="12" * 32,
    environment_equal=True,
    terms=TERMS,
    sigma=SIGMA,
    key=KEY,
    commitment=hashlib.sha256(b"lethe certified noise key 1\x00" + KEY).hexdigest(),
    parameters=2410,
    before=2,
    registration=("34" * 32, "34" * 32),
    rows_before=("56" * 32, "56" * 32),
    model_before=("78" * 32, "78" * 32),
)


def failed(claim: NoisyClaim) -> set[str]:
    report = VERIFIER.verify(claim)
    assert [check.name for check in report.checks] == NAMES
    return {check.name for check in report.checks if not check.passed}


def test_a_true_claim_passes() -> None:
    report = VERIFIER.verify(TRUE)
    assert report.result == "PASS"
    assert [check.number for check in report.checks] == list(range(1, 11))
    assert report.checks[6].value == "release 3 of 3, within its allowance"


def terms(**changes: Any) -> dict[str, Any]:
    return {"terms": replace(TERMS, **changes)}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"repeated": "13" * 32}, {"re-execution", "noise"}),
        ({"repeated": ""}, {"re-execution", "noise"}),
        ({"file_digest": "13" * 32}, {"model-file"}),
        ({"data": "ac" * 32}, {"data"}),
        ({"key": bytes(32)}, {"noise"}),
        ({"key": KEY[:31]}, {"noise"}),
        ({"commitment": ""}, {"noise"}),
        ({"parameters": 10_001}, {"noise"}),
        ({"sigma": SIGMA * (1 - 1e-5)}, {"budget"}),
        ({"sigma": 0.0}, {"budget"}),
        ({"sigma": float("nan")}, {"budget"}),
        ({"before": 3}, {"budget"}),
        ({"before": -1}, {"budget"}),
        ({"before": True}, {"budget"}),
        (terms(releases=4), {"budget"}),
        (terms(steps=5), {"budget"}),
        (terms(start_norm=0.11), {"budget"}),
        (terms(gradient_norm=0.06), {"budget"}),
        (terms(pull=0.0), {"budget"}),
        (terms(pull=2.1), {"budget"}),
        (terms(epsilon=0.99), {"budget"}),
        (terms(delta=0.99e-5), {"budget"}),
        ({"registration": ("34" * 32, "35" * 32)}, {"registration"}),
        ({"rows_before": ("56" * 32, "57" * 32)}, {"rows-before"}),
        ({"model_before": ("78" * 32, "79" * 32)}, {"model-before"}),
    ],
)
def test_each_defect_is_found(changes: dict[str, Any], wanted: set[str]) -> None:
    claim = replace(TRUE, **changes)
    assert failed(claim) == wanted
    assert VERIFIER.verify(claim).result == "FAIL"


def test_another_machine_decides_nothing() -> None:
    elsewhere = replace(TRUE, repeated="13" * 32, environment_equal=False)
    report = VERIFIER.verify(elsewhere)
    assert report.checks[4].value.endswith("in another environment")
    # The noise cannot be verified there either: neither refuted nor certified.
    assert report.result == "INCONCLUSIVE"
