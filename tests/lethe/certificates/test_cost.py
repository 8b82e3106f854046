"""What a certificate states of its cost: nothing is made up where it states nothing."""

from dataclasses import replace

import pytest

from lethe.certificates.cost import Cost, cost_of
from lethe.certificates.statement import CheckPart, Predicate
from tests.lethe.certificates.build import contents

AGAIN = CheckPart(1, "re-execution", "digest", "equal", None, "equal", True)


def stated(method: str, checks: tuple[CheckPart, ...] = (), **parameters: str) -> Predicate:
    """Return a predicate of a method with parameters, whose names have a dot for a low line."""
    _, predicate = contents()
    named = {name.replace("_", "."): value for name, value in parameters.items()}
    part = replace(predicate.method, id=method, parameters=named)
    return replace(predicate, method=part, checks=checks)


@pytest.mark.parametrize(
    ("predicate", "cost"),
    [
        (stated("ridge-exact"), Cost(None, None, None)),
        (stated("ridge-exact", cost_seconds="0.25"), Cost(0.25, None, None)),
        (
            stated("ridge-exact", cost_seconds="0.25", verification_seconds="3"),
            Cost(0.25, None, None),  # the verifier made nothing anew
        ),
        (
            stated("forest-exact", (AGAIN,), cost_seconds="0.25", verification_seconds="3"),
            Cost(0.25, 3.0, "verifier"),
        ),
        (
            stated("hf-kcu", cost_seconds="0.5", escalation_seconds="0.25"),
            Cost(0.75, None, None),
        ),
        (stated("retrain", cost_seconds="9.0"), Cost(None, 9.0, "method")),
        (stated("refit-shards", cost_seconds="9.0"), Cost(None, 9.0, "method")),
        (stated("rerun", cost_seconds="9.0"), Cost(None, 9.0, "method")),
        (
            stated("ridge-exact-refit", cost_seconds="2", escalation_seconds="0.5"),
            Cost(0.5, 2.0, "method"),
        ),
        (stated("refit", escalation_seconds="0.5"), Cost(0.5, None, None)),
    ],
)
def test_seconds_are_those_of_unlearning_and_of_a_retraining(
    predicate: Predicate, cost: Cost
) -> None:
    assert cost_of(predicate) == cost


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "soon", "1e12", ""])
def test_what_is_no_time_is_not_stated(text: str) -> None:
    predicate = stated("forest-exact", (AGAIN,), cost_seconds=text, verification_seconds=text)
    assert cost_of(predicate) == Cost(None, None, None)


def test_a_repeated_training_is_known_by_its_class() -> None:
    predicate = stated("vectors-drop", cost_seconds="1", verification_seconds="4")
    retrained = replace(predicate.guarantee, class_="exact-retrained")
    assert cost_of(replace(predicate, guarantee=retrained)) == Cost(1.0, 4.0, "verifier")
