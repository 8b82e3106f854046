"""The ladder of a policy: one spelling, a default by method and size, and no way around it."""

import json
from typing import Any

import pytest

from app.schemas.networks import VerificationTerms
from lethe import canonical
from workers.judge.policy.form import PolicyError
from workers.judge.policy.ladder import Rung
from workers.judge.policy.policy import (
    Policy,
    default,
    digest,
    format_policy,
    from_document,
    parse_policy,
    to_document,
)
from workers.judge.policy.schema import policy_schema
from workers.judge.samples.alpha_spending import spent
from workers.judge.samples.sizes import minimum_pairs

LADDER = (
    Rung("puf-special", {"unlearning_rate": 2.5, "guard": {"rise": 2, "shrink": 0.5}}),
    Rung("hf-kcu", {"form": "newton", "newton_above": None, "step": 1}),
    Rung("puf-special", {"guard": None, "recovery": {"rounds": 0, "within": -0.25}}),
)
FULL = Policy(("yeom",), tau=0.1, minimum_pairs=299, ladder=LADDER, budget=0.5)
WRITTEN = [
    {
        "method": "puf-special",
        "settings": {"guard": {"rise": 2, "shrink": "0.5"}, "unlearning_rate": "2.5"},
    },
    {"method": "hf-kcu", "settings": {"form": "newton", "newton_above": None, "step": 1}},
    {
        "method": "puf-special",
        "settings": {"guard": None, "recovery": {"rounds": 0, "within": "-0.25"}},
    },
]


def test_the_spelling_by_hand_and_back() -> None:
    assert to_document(FULL)["ladder"] == WRITTEN
    assert to_document(FULL)["budget"] == "0.5"
    assert parse_policy(format_policy(FULL)) == FULL
    short = to_document(FULL) | {"ladder": [{"method": "hf-kcu"}]}
    assert from_document(short).ladder == (Rung("hf-kcu"),)


def test_the_api_and_the_judge_have_one_digest() -> None:
    """Check 2 compares the one with what the log has of the other."""
    document = to_document(FULL)
    terms = VerificationTerms(**document).model_dump()
    assert terms == document
    assert canonical.encode(terms) == format_policy(FULL)
    assert digest(from_document(terms)) == digest(FULL)


@pytest.mark.parametrize(
    "ladder",
    [
        [{"method": "retrain"}],
        [{"method": "hf-kcu"}, {"method": "retrain", "settings": {}}],
        [{"method": "hf-kcu"}, {"method": "hf-kcu", "settings": {}}],
        [{"method": "hf-kcu", "settings": {"iterations": n}} for n in range(9)],
        [{"method": "hf-kcu", "more": 1}],
        [{"settings": {}}],
        [{"method": "HF"}],
        [{"method": 3}],
        ["hf-kcu"],
        {"method": "hf-kcu"},
        "hf-kcu",
        None,
        [{"method": "hf-kcu", "settings": []}],
        [{"method": "hf-kcu", "settings": {"step": 0.5}}],
        [{"method": "hf-kcu", "settings": {"step": "0.50"}}],
        [{"method": "hf-kcu", "settings": {"step": "2"}}],
        [{"method": "hf-kcu", "settings": {"step": "1.0000000000000001"}}],
        [{"method": "hf-kcu", "settings": {"step": 2**53}}],
        [{"method": "hf-kcu", "settings": {"form": "Not A Word"}}],
        [{"method": "hf-kcu", "settings": {"Form": "newton"}}],
        [{"method": "hf-kcu", "settings": {"guard": {"rise": {"deep": 1}}}}],
        [{"method": "hf-kcu", "settings": {"guard": {"rise": [1]}}}],
    ],
)
def test_a_bad_ladder_is_named_and_so_is_the_remedy(ladder: Any) -> None:
    with pytest.raises(PolicyError) as caught:
        from_document(to_document(FULL) | {"ladder": ladder})
    assert caught.value.field == "ladder"


@pytest.mark.parametrize("value", ["-1", "101", 0.5, None])
def test_a_budget_is_a_number_of_retrainings(value: Any) -> None:
    with pytest.raises(PolicyError, match="budget"):
        from_document(to_document(FULL) | {"budget": value})


def test_an_earlier_form_is_refused_with_what_would_do() -> None:
    earlier = to_document(FULL)
    del earlier["ladder"], earlier["budget"]
    with pytest.raises(PolicyError, match=r'version: add "ladder": \[\] and "budget": "1"'):
        from_document(earlier | {"version": 1})
    mended = from_document({**earlier, "ladder": [], "budget": "1", "version": 2})
    assert mended.ladder == ()


@pytest.mark.parametrize(
    "ladder", [[{"method": "retrain"}], [{"method": "sisa"}], [{"method": "magic"}]]
)
def test_the_api_refuses_rungs_that_cannot_be(ladder: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="ladder"):
        VerificationTerms(**{**to_document(FULL), "ladder": ladder})


def test_every_rung_and_the_budget_change_the_digest() -> None:
    changed: list[dict[str, Any]] = [
        {"ladder": WRITTEN[:2]},
        {"ladder": WRITTEN[::-1]},
        {"budget": "0.25"},
    ]
    found = {digest(from_document({**to_document(FULL), **change})) for change in changed}
    assert len(found | {digest(FULL)}) == 4


def test_the_default_has_a_ladder_where_a_second_judgement_has_power() -> None:
    cheap = (Rung("hf-kcu", {"curvature_rows": 0.1}),)
    assert default(600, method="puf-special").ladder == cheap
    assert default(600, method="puf-regular").ladder == cheap
    assert default(600, method="hf-kcu").ladder == default(600).ladder == ()
    assert default(30, method="puf-special").ladder == ()  # nothing has power: all climb
    # 420 rows show a margin of 0.1 once, and not again at the alpha of a second judgement.
    once = default(420, method="puf-special")
    assert once.minimum_pairs <= 0.75 * 420 < minimum_pairs(0.1, spent(0.05, 1) / once.tests())
    assert once.ladder == ()


def test_the_schema_says_what_a_rung_is() -> None:
    rung = policy_schema()["properties"]["ladder"]["items"]
    assert rung["required"] == ["method"]
    assert rung["additionalProperties"] is False
    json.dumps(policy_schema())
