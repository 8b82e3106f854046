"""A retrained model is judged by its re-execution; every planted difference is seen."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from tests.workers.judge.claims import purge_claim, retained_set_claim
from workers.judge import registry
from workers.judge.base import Probe
from workers.judge.exact_retrained import RetrainedClaim

VERIFIER = registry.get("exact-retrained")


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


TRUE = RetrainedClaim(
    retained_set=retained_set_claim(),
    purge=purge_claim(),
    published_digest=sha("model"),
    file_digest=sha("model"),
    reexecuted_digest=sha("model"),
    rounds=20,
    reexecuted_rounds=20,
    claimed_start=sha("start"),
    start=sha("start"),
    claimed_data=sha("data"),
    data=sha("data"),
    answers_missing=0,
    answers_allowed=0,
    rows_before=("cd" * 32, "cd" * 32),
    environment_equal=True,
)


def test_a_true_claim_passes() -> None:
    report = VERIFIER.verify(TRUE)
    assert report.result == "PASS"
    assert [check.number for check in report.checks] == [1, 2, 3, 4, 5, 6, 7]
    assert "20 of 20 rounds" in report.checks[5].value


SEEN = purge_claim().probes[0]


@pytest.mark.parametrize(
    ("changes", "result", "number"),
    [
        ({"file_digest": sha("x")}, "FAIL", 1),
        ({"data": sha("x")}, "FAIL", 2),
        ({"claimed_data": sha("x")}, "FAIL", 2),
        ({"retained_set": replace(TRUE.retained_set, erased=[])}, "FAIL", 3),
        ({"purge": replace(TRUE.purge, retained_rows=["1"])}, "FAIL", 3),
        ({"purge": replace(TRUE.purge, probes=[Probe("a", "", True)])}, "FAIL", 4),
        ({"purge": replace(TRUE.purge, probes=[])}, "INCONCLUSIVE", 4),
        ({"start": sha("x")}, "FAIL", 5),
        ({"claimed_start": ""}, "FAIL", 5),
        ({"reexecuted_digest": sha("x")}, "FAIL", 6),
        ({"reexecuted_digest": sha("x"), "environment_equal": False}, "INCONCLUSIVE", 6),
        ({"reexecuted_digest": None}, "INCONCLUSIVE", 6),
        ({"reexecuted_rounds": 19}, "INCONCLUSIVE", 6),
        ({"reexecuted_rounds": 0}, "INCONCLUSIVE", 6),
        ({"reexecuted_rounds": 19, "reexecuted_digest": sha("x")}, "FAIL", 6),
        ({"answers_missing": 1}, "INCONCLUSIVE", 6),
        ({"answers_missing": -1}, "FAIL", 6),
        ({"rounds": 0, "reexecuted_rounds": 0}, "FAIL", 6),
        ({"reexecuted_rounds": 21}, "FAIL", 6),
        ({"reexecuted_digest": sha("model").upper()}, "FAIL", 6),
    ],
)
def test_what_was_planted_is_found(changes: dict[str, Any], result: str, number: int) -> None:
    report = VERIFIER.verify(replace(TRUE, **changes))
    assert report.result == result
    assert [check.number for check in report.checks if not check.passed] == [number]


def test_equal_bits_need_no_equal_environment() -> None:
    assert VERIFIER.verify(replace(TRUE, environment_equal=False)).result == "PASS"


def test_a_slice_of_the_rounds_says_what_it_misses() -> None:
    check = VERIFIER.verify(replace(TRUE, reexecuted_rounds=5)).checks[5]
    assert "chance of 0.7500" in check.value


@pytest.mark.parametrize("name", [field for field in RetrainedClaim.__dataclass_fields__])
@pytest.mark.parametrize("odd", [None, 3.5, "x", b"x", [], float("nan"), 10**400])
def test_odd_claims_never_pass_and_never_raise(name: str, odd: Any) -> None:
    if name == "environment_equal" or (name, odd) == ("reexecuted_digest", None):
        return
    report = VERIFIER.verify(replace(TRUE, **{name: odd}))
    assert report.result != "PASS"
    assert [check.number for check in report.checks] == [1, 2, 3, 4, 5, 6, 7]
