"""Both tellings of a climb agree, or the certificate is refused; old ones have one of them."""

from dataclasses import dataclass, replace

import pytest

from lethe import canonical
from lethe.certificates import shape
from lethe.certificates.climb import RungPart, from_line, read_climb, spelled, write_climb
from lethe.certificates.errors import ShapeError
from lethe.certificates.statement import Subject, build_statement
from lethe.certificates.verify import verify_certificate
from tests.lethe.certificates.build import (
    MODEL,
    Office,
    contents,
    digest_of,
    issuer_key,
    log_signer,
)
from tests.lethe.certificates.climbs import LINE, SKIPPED, UNDECIDED

TOLD = write_climb([UNDECIDED, SKIPPED])
OLD = [
    RungPart("puf", "FAIL", "yeom:auc: 0.7", ()),
    RungPart("retrain", "PASS", None, ()),
    RungPart("hf-kcu", "NONE", "not judged by itself", ()),
    RungPart("natural", "NONE", None, ()),
]


def test_the_line_is_the_one_it_was_before_there_was_more() -> None:
    assert TOLD["climb"] == LINE
    assert read_climb(TOLD) == (UNDECIDED, SKIPPED)


def test_what_was_climbed_nowhere_tells_nothing() -> None:
    assert read_climb({"asked": "retrain"}) == ()


def test_an_old_certificate_has_the_line_alone() -> None:
    line = (
        "puf: FAIL (yeom:auc: 0.7) | retrain: PASS () | hf-kcu: not judged by itself | natural"
    )
    assert list(read_climb({"climb": line})) == OLD
    assert " | ".join(map(spelled, OLD)) == line
    # One that was begun under an earlier release is told in the line alone to its end.
    assert write_climb([*OLD, UNDECIDED]) == {"climb": f"{line} | {spelled(UNDECIDED)}"}


@dataclass(frozen=True)
class Told:
    """What `climb.rungs` holds, whatever the rungs are."""

    rungs: tuple[RungPart, ...]


NOT_OF_THE_FORM = {
    "PASS": replace(UNDECIDED, result="PASS"),
    "NONE with checks": replace(UNDECIDED, result="NONE"),
    "NONE with checks and a reason": replace(UNDECIDED, result="NONE", reason="BudgetSpent"),
    "NONE without a reason": replace(SKIPPED, reason=None),
    "NONE with a verdict": replace(SKIPPED, reason="INCONCLUSIVE (samples: too few)"),
    "a verdict without checks": replace(UNDECIDED, checks=()),
    "a verdict with a reason": replace(UNDECIDED, reason="samples: too few"),
    "a reason for checks": replace(UNDECIDED, reason="samples: too few", checks=()),
    "FAIL of nothing": replace(UNDECIDED, result="FAIL", checks=UNDECIDED.checks[:1]),
}


@pytest.mark.parametrize("rung", NOT_OF_THE_FORM.values(), ids=NOT_OF_THE_FORM)
def test_a_rung_is_of_the_documented_form_or_refused(rung: RungPart) -> None:
    assert "climb.rungs" not in write_climb([SKIPPED, rung])
    told = shape.encode(Told((SKIPPED, rung))).decode()
    line = " | ".join(map(spelled, (SKIPPED, rung)))
    with pytest.raises(ShapeError, match=r"parameters\.climb\.rungs\.rungs\[1\] must "):
        read_climb({"climb": line, "climb.rungs": told})


@pytest.mark.parametrize(
    "told",
    [
        {**TOLD, "climb": "puf-special: FAIL (yeom:auc: 0.7)"},
        {"climb.rungs": TOLD["climb.rungs"]},
        {**TOLD, "climb.rungs": "[]"},
        {**TOLD, "climb.rungs": canonical.encode({"rungs": []}).decode()},
        {**TOLD, "climb.rungs": TOLD["climb.rungs"].replace("18.4%", "98.4%")},
        {**TOLD, "climb.rungs": TOLD["climb.rungs"].replace("NONE", "LEAK")},
    ],
)
def test_a_climb_that_is_told_in_two_ways_fails_step_7(told: dict[str, str]) -> None:
    with pytest.raises(ShapeError):
        read_climb(told)
    old = {"climb": " | ".join(map(spelled, OLD))}
    for given, number in ((told, 7), (TOLD, None), (old, None)):
        predicate = contents()[1]
        method = replace(predicate.method, parameters={**predicate.method.parameters, **given})
        payload = build_statement(
            [Subject("x", digest_of(MODEL))], replace(predicate, method=method)
        )
        verdict = verify_certificate(
            Office().seal(payload), log=log_signer().verifier, issuer=issuer_key().public_key()
        )
        failed = [step.number for step in verdict.steps if not step.passed]
        assert failed[:1] == ([] if number is None else [number])


def test_a_rung_of_the_line_keeps_all_that_is_said() -> None:
    text = "puf-special(guard.rise=2): INCONCLUSIVE (a: (b); c: d | e)"
    assert spelled(from_line(text)) == text
