"""A silent silo shows nothing and refutes nothing; the other silos' results stand."""

from dataclasses import replace
from typing import Any

import pytest

from tests.workers.judge.empirical_claims import PUBLISHED, simulated
from workers.judge.samples.empirical import VERIFIER
from workers.judge.silos import SilosClaim

CLAIM = simulated(0)
ALL = SilosClaim(3, 3, {})
SOME = SilosClaim(3, 1, {"no answer in time": 1, "not signed": 1})


def test_where_all_answered_the_verdict_is_that_of_one_process() -> None:
    alone = VERIFIER.verify(CLAIM)
    found = VERIFIER.verify(replace(CLAIM, silos=ALL))
    *same, last = found.checks
    assert (alone.result, list(alone.checks)) == ("PASS", same)
    assert found.result == "PASS"
    assert (last.name, last.number, last.passed) == ("silos-answered", len(same) + 1, True)
    assert last.value == "3 of 3 silos"


@pytest.mark.parametrize(
    "silos",
    [SOME, SilosClaim(3, 0, {"no answer in time": 3}), SilosClaim(3, 3, {"not signed": 1})],
)
def test_where_one_is_silent_nothing_passes_and_nothing_is_refuted(silos: SilosClaim) -> None:
    found = VERIFIER.verify(replace(CLAIM, silos=silos))
    assert found.result == "INCONCLUSIVE"
    passed = {check.name for check in found.checks if check.passed}
    assert passed == {"model-file", "policy"}
    assert [check.number for check in found.checks] == list(range(1, len(found.checks) + 1))
    assert found.checks[-1].name == "silos-answered"


def test_the_check_counts_the_reasons() -> None:
    last = VERIFIER.verify(replace(CLAIM, silos=SOME)).checks[-1]
    assert last.value == "1 of 3 silos; no answer in time: 1; not signed: 1"


def test_the_check_names_the_keys_that_signed() -> None:
    keys = {"10": "ab" * 32, "2": "cd" * 32}
    last = VERIFIER.verify(replace(CLAIM, silos=replace(SOME, keys=keys))).checks[-1]
    told = f"; keys: 2 {'cd' * 32}, 10 {'ab' * 32}"
    assert last.value == "1 of 3 silos; no answer in time: 1; not signed: 1" + told


def test_wrong_digests_of_some_rows_refute_nothing() -> None:
    wrong = replace(CLAIM, rows_after=("ab" * 32, "cd" * 32))
    assert VERIFIER.verify(wrong).result == "FAIL"
    assert VERIFIER.verify(replace(wrong, silos=SOME)).result == "INCONCLUSIVE"


def test_what_needs_no_rows_and_what_was_found_stored_is_refuted_all_the_same() -> None:
    other = replace(CLAIM, model="00" * 32, silos=SOME)
    assert other.published_digest == PUBLISHED
    assert VERIFIER.verify(other).result == "FAIL"
    stored = replace(CLAIM.purge, retained_rows=[*CLAIM.purge.retained_rows, "0"])
    assert VERIFIER.verify(replace(CLAIM, purge=stored, silos=SOME)).result == "FAIL"


@pytest.mark.parametrize("odd", ["silos", 3, SilosClaim("3", None, ()), SilosClaim(3, 3, 5)])  # type: ignore[arg-type]
def test_an_odd_claim_does_not_stop_the_judge(odd: Any) -> None:
    assert VERIFIER.verify(replace(CLAIM, silos=odd)).result in ("FAIL", "INCONCLUSIVE")
