"""What was not tested is said of each class, and never of what was."""

from dataclasses import replace
from typing import Any

import pytest

from lethe.certificates.statement import CheckPart, Predicate
from lethe.cli.certificate_untested import ELSEWHERE, HELD, untested
from tests.lethe.certificates.build import contents

AUC = CheckPart(1, "yeom:auc", "0.51", ("0.45", "0.57"), "between 0.4 and 0.6", passed=True)
FORGET = CheckPart(2, "forget-accuracy", "0.8", None, "accuracy; reported only", passed=True)
DISTANCES = CheckPart(3, "distances", "not measured: no model", None, "none", passed=True)


def said(class_: Any, *checks: CheckPart, **parameters: str) -> Predicate:
    predicate = contents()[1]
    return replace(
        predicate,
        guarantee=replace(predicate.guarantee, class_=class_),
        method=replace(predicate.method, parameters=parameters),
        checks=checks or predicate.checks,
    )


def test_a_verdict_by_samples_says_which_attacks_ran_and_what_was_only_measured() -> None:
    found = list(untested(said("empirical-approximate", AUC, FORGET, DISTANCES)))
    assert found == [
        "distances: no model",
        "forget-accuracy: measured and reported, with no limit to pass",
        "attacks other than yeom: a stronger one may find more",
        "erased rows without a partner: the check samples says which share was tested",
        "any single record: the tests are on averages and on a tail",
        "the method over many erasures: the certificate cites no audit of it",
        ELSEWHERE,
    ]


def test_an_audit_that_is_cited_is_not_called_missing_and_one_that_is_says_why() -> None:
    cited = said("empirical-approximate", AUC, **{"audit": "ab" * 32})
    assert not any("many erasures" in line for line in untested(cited))
    missing = said("empirical-approximate", AUC, **{"audit.missing": "it is not stored"})
    assert "the method over many erasures: it is not stored" in list(untested(missing))


@pytest.mark.parametrize(
    ("class_", "instead"),
    [
        ("exact", "was proven"),
        ("numerically-exact", "was proven"),
        ("certified-approximate", "was proven"),
        ("exact-retrained", "the training was repeated"),
    ],
)
def test_no_attack_was_run_where_something_stronger_was(class_: str, instead: str) -> None:
    found = list(untested(said(class_)))
    assert any("none was run" in line and instead in line for line in found)
    assert found[-1] == ELSEWHERE
    assert HELD not in found
    assert HELD in list(untested(said(class_, data="masked")))


def test_answers_that_were_missing_are_told() -> None:
    for missing, told in (("3", True), ("0", False)):
        found = untested(said("exact-retrained", **{"retrain.missing": missing}))
        assert any("missing" in line for line in found) == told
