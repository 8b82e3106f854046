"""An escalation is of the documented form, or the certificate is refused."""

from dataclasses import dataclass, replace

import pytest

from lethe.canonical import NotCanonicalError
from lethe.certificates import shape
from lethe.certificates.errors import ShapeError
from lethe.certificates.statement import (
    AttemptPart,
    Subject,
    build_statement,
    certified_number,
    from_line,
    read_escalation,
    spelled,
    write_escalation,
)
from lethe.certificates.verify import verify_certificate
from tests.lethe.certificates.build import (
    MODEL,
    Office,
    contents,
    digest_of,
    issuer_key,
    log_signer,
)
from tests.lethe.certificates.escalations import SKIPPED, UNDECIDED

TOLD = write_escalation([UNDECIDED, SKIPPED])


def test_an_escalation_is_read_as_it_was_written() -> None:
    assert read_escalation(TOLD) == (UNDECIDED, SKIPPED)


def test_what_was_escalated_nowhere_tells_nothing() -> None:
    assert read_escalation({"asked": "retrain"}) == ()


@dataclass(frozen=True)
class Told:
    """What `escalation.attempts` holds, whatever the attempts are."""

    attempts: tuple[AttemptPart, ...]


NOT_OF_THE_FORM = {
    "NONE with checks": replace(UNDECIDED, result="NONE"),
    "NONE with checks and a reason": replace(UNDECIDED, result="NONE", reason="BudgetSpent"),
    "NONE without a reason": replace(SKIPPED, reason=None),
    "NONE with a verdict": replace(SKIPPED, reason="INCONCLUSIVE (samples: too few)"),
    "a verdict without checks": replace(UNDECIDED, checks=()),
    "a verdict with a reason": replace(UNDECIDED, reason="samples: too few"),
    "a reason for checks": replace(UNDECIDED, reason="samples: too few", checks=()),
    "a verdict without a number": replace(UNDECIDED, number=None),
    "a number after a gap": replace(UNDECIDED, number=2),
    "number 0": replace(UNDECIDED, number=0),
    "FAIL of nothing": replace(UNDECIDED, result="FAIL", checks=UNDECIDED.checks[:1]),
}


@pytest.mark.parametrize("attempt", NOT_OF_THE_FORM.values(), ids=NOT_OF_THE_FORM)
def test_an_attempt_is_of_the_documented_form_or_refused(attempt: AttemptPart) -> None:
    why = r"parameters\.escalation\.attempts\.attempts\[1\] must "
    with pytest.raises(ShapeError, match=why):
        write_escalation([SKIPPED, attempt])
    with pytest.raises(ShapeError, match=why):
        read_escalation(
            {
                "escalation.attempts": shape.encode(Told((SKIPPED, attempt))).decode(),
                "attempt": "2",
            }
        )


def test_the_certified_attempt_has_the_next_number() -> None:
    assert TOLD["attempt"] == "2"
    assert certified_number(TOLD) == 2
    assert certified_number({}) == 1
    assert write_escalation([SKIPPED])["attempt"] == "1"
    again = replace(SKIPPED, number=2, reason="not judged by itself")
    assert write_escalation([UNDECIDED, SKIPPED, again])["attempt"] == "3"


@pytest.mark.parametrize(
    "told",
    [
        {**TOLD, "escalation.attempts": "[]"},
        {**TOLD, "escalation.attempts": TOLD["escalation.attempts"] + " "},
        {**TOLD, "escalation.attempts": TOLD["escalation.attempts"].replace("NONE", "LEAK")},
        {
            **TOLD,
            "escalation.attempts": TOLD["escalation.attempts"].replace("INCONCLUSIVE", "PASS"),
        },
        {**TOLD, "attempt": "3"},
        {**TOLD, "attempt": "02"},
        {"escalation.attempts": TOLD["escalation.attempts"]},
        {"attempt": "2"},
    ],
)
def test_an_escalation_of_another_form_fails_step_7(told: dict[str, str]) -> None:
    with pytest.raises((NotCanonicalError, ShapeError)):
        read_escalation(told)
    for given, number in ((told, 7), (TOLD, None)):
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


def test_a_line_of_the_log_keeps_all_that_is_said() -> None:
    text = "puf-special(guard.rise=2): not run (a: (b); c: d | e)"
    assert spelled(from_line(text)) == text
    assert from_line("natural").reason is None
