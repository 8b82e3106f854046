"""What a certificate says in plain words: of each class, and never more than was checked."""

from dataclasses import replace
from typing import Any, get_args

import pytest

from lethe.certificates.statement import GuaranteeClass, Predicate, Scope
from lethe.cli.certificate_words import in_words
from tests.lethe.certificates.build import contents

BEGINS = "2 records were erased on 2026-11-21 from model digits-head. "
SAYS: dict[str, str] = {
    "exact": "exact solution, correctly rounded, for the records that remain.",
    "numerically-exact": "up to a proven bound on its numerical error.",
    "certified-approximate": "within a proven distance of the solution",
    "exact-retrained": "The model was trained again without them, and the training was repeated "
    "with the same result. All 2 checks",
    "empirical-approximate": "that is evidence, and no proof.",
    "none": "Nothing is guaranteed",
}


def said(class_: Any = "exact", parameters: Any = (), **changes: Any) -> Predicate:
    predicate = contents()[1]
    guarantee = replace(predicate.guarantee, class_=class_)
    method = replace(predicate.method, parameters=dict(parameters))
    return replace(predicate, guarantee=guarantee, method=method, **changes)


@pytest.mark.parametrize("class_", get_args(GuaranteeClass))
def test_each_class_has_its_words(class_: str) -> None:
    words = in_words(said(class_))
    assert words.startswith(BEGINS)
    assert SAYS[class_] in words
    assert words.endswith(" All 2 checks passed.")


@pytest.mark.parametrize(
    ("level", "records", "begins"),
    [
        ("sample", 1, "1 record was erased"),
        ("client", 302, "302 records of one client were erased"),
        ("subject", 1, "1 record of one person was erased"),
    ],
)
def test_it_says_whose_and_how_many(level: Any, records: int, begins: str) -> None:
    assert in_words(said(scope=Scope(level, records, b"r" * 32))).startswith(begins)


@pytest.mark.parametrize("data", ["statistics", "masked"])
@pytest.mark.parametrize("class_", ["exact", "numerically-exact", "certified-approximate"])
def test_of_rows_elsewhere_it_says_that_nobody_saw_them(class_: str, data: str) -> None:
    words = in_words(said(class_, {"data": data}))
    assert "the sums that clients sent" in words
    assert "It did not see the records themselves." in words
    assert "did not see" not in in_words(said(class_, {"data": "rows"}))


def test_missing_answers_are_told_where_there_were_some() -> None:
    assert "missing in both: 3." in in_words(said("exact-retrained", {"retrain.missing": "3"}))
    assert "missing" not in in_words(said("exact-retrained", {"retrain.missing": "0"}))


def test_what_did_not_pass_is_called_neither_erased_nor_trained() -> None:
    checks = contents()[1].checks
    failed = (replace(checks[0], passed=False), checks[1])
    assert in_words(said("exact-retrained", checks=failed, result="FAIL")) == (
        "It is not shown that 2 records left model digits-head: the result is FAIL, and 1 of 2 "
        "checks did not pass."
    )
