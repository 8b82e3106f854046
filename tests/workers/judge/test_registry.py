"""Verifiers by class, and claims that belong to another."""

import pytest

from tests.workers.judge.certified.logistic_claims import logistic_claim
from tests.workers.judge.claims import erasure, exact_claim
from tests.workers.judge.empirical_claims import simulated
from tests.workers.judge.test_exact_retrained import TRUE
from workers.judge import registry

CLASSES = (
    "certified-approximate",
    "empirical-approximate",
    "exact",
    "exact-retrained",
    "numerically-exact",
    "retrained",
)


def test_every_class_has_its_verifier() -> None:
    assert registry.known() == CLASSES
    assert [registry.get(name).id for name in CLASSES] == list(CLASSES)
    versions = {name: registry.get(name).version for name in CLASSES}
    of_heads = dict.fromkeys(("certified-approximate", "numerically-exact"), "4")
    of_others = {"empirical-approximate": "4", "exact": "6", "exact-retrained": "2"}
    assert versions == of_heads | of_others | {"retrained": "2"}


@pytest.mark.parametrize("name", CLASSES)
def test_a_claim_of_another_class_fails(name: str) -> None:
    claims = (exact_claim(erasure()), simulated(0), TRUE, logistic_claim())
    results = [registry.get(name).verify(claim) for claim in claims]
    strangers = [r for r in results if r.checks[0].name == "claim"]
    own = {"certified-approximate": 2, "retrained": 0}.get(name, 1)
    assert len(strangers) == len(claims) - own
    for report in strangers:
        assert report.result == "FAIL"
        assert [check.number for check in report.checks] == [1]


def test_the_kind_of_model_chooses_among_the_verifiers_of_one_class() -> None:
    judge = registry.get("certified-approximate")
    assert [check.name for check in judge.verify(logistic_claim()).checks][
        4
    ] == "gradient-bound"
    assert judge.verify(logistic_claim()).result == "PASS"
    assert "posterior" not in str(judge.verify(logistic_claim()).checks)
    assert judge.verify(exact_claim(erasure())).checks[0].name == "statistics-recomputed"
