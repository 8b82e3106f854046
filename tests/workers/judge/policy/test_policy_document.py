"""The schema of policies refuses what the service refuses: each number beyond either end."""

import json
import re
from decimal import Decimal
from math import inf, nextafter
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from app.schemas.families.networks import VerificationTerms
from tests.workers.judge.policy.json_schema import accepts
from workers.errors import RefusedError
from workers.judge.policy.document import (
    SPELLED,
    at_least,
    at_most,
    from_document,
    policy_schema,
    to_document,
)
from workers.judge.policy.policy import COUNTS, DECIMALS, MOST_WHOLE, default
from workers.judge.samples.distances import DISTANCES

SCHEMA = policy_schema()
PLAIN = to_document(default(3000, method="puf-special")) | {"minimum_pairs": 10**6}
DOCUMENT = to_document(default(3000, references=16)) | {"minimum_pairs": 10**6}
# Not canonical decimals, or not decimals at all.
ODD = [
    "",
    ".5",
    "00.5",
    "0.",
    "0.50",
    "1.0",
    "1e-1",
    "+0.5",
    "-0.5",
    "-0",
    "0,5",
    "NaN",
    " 0.5",
]


def spelled(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def around(low: float, high: float) -> list[str]:
    """Return decimals at both ends, as close beyond them as possible, and further out."""
    found = []
    for end in (low, high):
        near = [nextafter(end, -inf), nextafter(end, inf)] if end >= 0.5 else []
        steps = [Decimal(text) for text in ("1e-16", "0.00001", "0.1", "1", "10")]
        found += [Decimal(repr(one)) for one in (end, *near)]
        found += [
            Decimal(repr(end)) + sign * step for step in steps[bool(near) :] for sign in (-1, 1)
        ]
    parts = [Decimal(part) / 10 for part in range(1, 10)]
    return [spelled(Decimal(repr(low)) * (1 - p) + Decimal(repr(high)) * p) for p in parts] + [
        spelled(value) for value in found
    ]


def served(document: dict[str, Any]) -> bool:
    """Return whether the service accepts a policy, and the verifier its canonical form."""
    try:
        VerificationTerms.model_validate_json(json.dumps(document))
        from_document(document)
    except (ValidationError, RefusedError):
        return False
    return True


def agreed(document: dict[str, Any]) -> bool:
    """Return whether schema and service accept a document, checking that they agree."""
    assert accepts(SCHEMA, document) == served(document), document
    return served(document)


@pytest.mark.parametrize(
    "name", [*DECIMALS, "canary_limit", *(f"distances.{d}" for d in DISTANCES)]
)
def test_decimals_end_where_the_service_says(name: str) -> None:
    low, high = DECIMALS.get(name, (0.0, 1.0 if name == "canary_limit" else 1e8))[:2]
    field, _, inner = name.partition(".")
    taken = {
        value: agreed({**DOCUMENT, field: {inner: value} if inner else value})
        for value in [*around(low, high), *ODD]
    }
    ends = [spelled(Decimal(repr(end))) for end in (low, high)]
    assert all(taken[end] for end in ends)
    assert sum(taken.values()) >= 9
    assert not any(taken[value] for value in ODD if value not in ends)
    for value in (
        0.05,
        1,
        None,
        True,
        ["0.1"],
    ):  # never numbers, which have many spellings
        agreed({**DOCUMENT, field: {inner: value} if inner else value})


@pytest.mark.parametrize("name", [*COUNTS, "references"])
def test_counts_end_where_the_service_says(name: str) -> None:
    low, high = COUNTS.get(name, (4, 256))[:2]
    document = DOCUMENT | {"tail_rate": "0.1"}
    taken = {
        value: agreed({**document, name: value})
        for end in (low, high)
        for value in (end - 1, end, end + 1)
        if name != "minimum_pairs" or not 2 <= value < 29  # fewer than the tail rate needs
    }
    assert taken[high]
    assert not taken[low - 1]
    assert not taken[high + 1]
    assert not any(agreed({**document, name: value}) for value in ("5", True, 40.5, [5]))


def test_what_a_setting_of_an_attempt_may_be_ends_where_the_service_says() -> None:
    def attempt(value: Any) -> dict[str, Any]:
        inner = {"method": "hf-kcu", "settings": {"guard": {"rise": value}, "rise": value}}
        return {**PLAIN, "ladder": [inner]}

    whole = (0, -3, MOST_WHOLE, -MOST_WHOLE)
    inside: list[Any] = [*whole, True, None, "0.5", "-2.25", "word"]
    assert all(agreed(attempt(value)) for value in inside)
    beyond: list[Any] = [MOST_WHOLE + 1, -MOST_WHOLE - 1, 0.5, "0.50", "3", "Word", []]
    assert not any(agreed(attempt(value)) for value in beyond)
    assert not agreed({**PLAIN, "ladder": [{"method": "retrain"}]})


def test_reference_models_are_for_the_attacks_that_look_at_them() -> None:
    assert agreed(DOCUMENT)
    assert agreed(PLAIN)
    assert not agreed({**PLAIN, "references": 16})
    assert not agreed({k: v for k, v in DOCUMENT.items() if k != "references"})
    assert agreed({**PLAIN, "attacks": ["rmia"], "references": 16})


@pytest.mark.parametrize(
    "bound", ["0", "7", "10", "1000", "409", "0.001", "0.999", "20.07", "90.9"]
)
def test_a_range_in_characters_is_one_of_numbers(bound: str) -> None:
    random, exact = Random(bound), Decimal(bound)
    lower, upper = re.compile(at_least(bound)), re.compile(at_most(bound))
    seen = set()
    for _ in range(3000):
        whole = str(random.randrange(10 ** random.randrange(5)))
        fraction = str(random.randrange(10 ** random.randrange(6))).zfill(random.randrange(4))
        near = exact + random.randrange(-20, 20) * Decimal(10) ** -random.randrange(5)
        for text in (spelled(Decimal(f"{whole}.{fraction}")), spelled(abs(near))):
            assert re.fullmatch(SPELLED, text)
            value = Decimal(text)
            assert (lower.fullmatch(text) is not None) == (value >= exact), text
            assert (upper.fullmatch(text) is not None) == (value <= exact), text
            seen.add((value > exact) - (value < exact))
    assert seen >= ({0, 1} if bound == "0" else {-1, 0, 1})
