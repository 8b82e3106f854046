"""DROP's statuses of what was found, and of cases."""

from typing import Any

import pytest

from lethe.catalogue import REFUSALS
from lethe.protocols.drop_lists import SOURCE, status_of_case, status_of_found


def found(records: int = 0, held_out: int = 0, erased: int = 0) -> dict[str, Any]:
    return {"records": ["r"] * records, "held_out": ["h"] * held_out, "erased": erased}


def test_only_who_has_no_record_has_a_status_without_a_case() -> None:
    assert status_of_found([found(), found()]) == 5
    assert status_of_found([found(), found(erased=2)]) == 3
    assert status_of_found([found(erased=2), found(records=1)]) is None
    assert status_of_found([found(held_out=1)]) is None
    # An erasure without a certificate: the case follows its request.
    assert status_of_found([found(erased=2), {**found(), "uncertified": 1}]) is None


def case(**outcomes: str) -> dict[str, Any]:
    """A case with a part for each model; "refused: CODE" and "removed" say more."""
    parts, timeline = [], []
    for model, text in outcomes.items():
        outcome, _, code = text.partition(": ")
        removed = outcome == "removed"
        parts.append(
            {
                "model": model,
                "outcome": "held out only" if removed else outcome,
                "held_out_removed": int(removed),
            }
        )
        if code:
            detail = {"reason": REFUSALS["ccpa"][code]}
            timeline.append({"model": model, "event": "request.refused", "detail": detail})
    return {"parts": parts, "timeline": timeline}


@pytest.mark.parametrize(
    ("outcomes", "status", "state"),
    [
        ({"a": "certified", "b": "nothing found"}, 3, ""),
        ({"a": "erased before"}, 3, ""),
        ({"a": "removed"}, 3, ""),
        ({"a": "nothing found"}, 5, ""),
        ({"a": "refused: legal-obligation", "b": "nothing found"}, 2, ""),
        ({"a": "refused: legal-obligation", "b": "certified"}, 3, ""),
        ({"a": "certified", "b": "in progress"}, None, "in progress"),
        ({"a": "refused: not-verified"}, None, "refused"),
        ({"a": "refused: unfounded"}, None, "refused"),
        ({"a": "refused"}, None, "refused"),
        ({"a": "failed"}, None, "failed"),
        ({"a": "withdrawn"}, None, "withdrawn"),
        ({"a": "held out only"}, None, SOURCE),
    ],
)
def test_a_case_has_a_status_once_every_part_has_one(
    outcomes: dict[str, str], status: int | None, state: str
) -> None:
    assert status_of_case(case(**outcomes)) == (status, state)
