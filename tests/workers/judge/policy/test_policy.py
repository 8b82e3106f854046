"""Policies: one encoding, and errors that name the field and the remedy."""

import hashlib
import json
from typing import Any

import pytest

from app.schemas.families.networks import VerificationTerms
from lethe import canonical
from workers.judge.inference.intervals import spent
from workers.judge.inference.sizes import minimum_pairs
from workers.judge.policy.document import (
    digest,
    format_policy,
    from_document,
    parse_policy,
    policy_schema,
    to_document,
)
from workers.judge.policy.policy import USUAL, LadderStep, Policy, PolicyError, default

FULL = Policy(
    ("lira", "yeom"),
    tau=0.05,
    minimum_pairs=1000,
    canary_limit=0.2,
    distances={"output-kl": 0.1, "disagreement": 0.25},
    references=16,
    fingerprint={"method": "puf", "network": "réseau"},
)


@pytest.mark.parametrize("policy", [FULL, default(500), default(10_000, method="hf-kcu")])
def test_read_again_it_is_the_same(policy: Policy) -> None:
    assert parse_policy(format_policy(policy)) == policy
    assert from_document(to_document(policy)) == policy
    assert digest(policy) == hashlib.sha256(format_policy(policy)).hexdigest()


def test_the_spelling_by_hand() -> None:
    policy = Policy(("yeom",), tau=0.1, minimum_pairs=299, alpha=0.00001)
    assert format_policy(policy) == (
        b'{"alpha":"0.00001","attacks":["yeom"],"budget":"1","canary_limit":null,'
        b'"coverage":"0.8","distances":{},"fingerprint":{},"ladder":[],"minimum_others":50,"minimum_pairs":299,'
        b'"minimum_retained":200,"power":"0.8","retained_loss":"0.05","tail_limit":"0.05",'
        b'"tail_rate":"0.01","tau":"0.1","test_loss":"0.1","version":2}'
    )


@pytest.mark.parametrize(
    "data",
    [
        format_policy(FULL).replace(b":", b": "),
        format_policy(FULL).replace(b'"0.05"', b'"0.050"'),
        json.dumps(dict(reversed(to_document(FULL).items()))).encode(),
        format_policy(FULL)[:-1] + b',"version":2}',
        format_policy(FULL) + b"\n",
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b'{"version":' + b"9" * 5000 + b"}",
        b"NaN",
    ],
)
def test_another_spelling_is_refused(data: bytes) -> None:
    with pytest.raises(PolicyError):
        parse_policy(data)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tau", "0"),
        ("tau", "0.3"),
        ("tau", 0.05),
        ("tau", "5e-2"),
        ("tau", "NaN"),
        ("tau", None),
        ("alpha", "0.5"),
        ("power", "1"),
        ("coverage", "-0.5"),
        ("tail_rate", "0"),
        ("tail_rate", "0.0001"),  # needs more pairs than required
        ("minimum_pairs", 298),
        ("minimum_pairs", "1000"),
        ("minimum_pairs", True),
        ("minimum_retained", 0),
        ("minimum_others", 1.5),
        ("version", 1),
        ("version", 3),
        ("attacks", []),
        ("attacks", ["yeom", "lira"]),
        ("attacks", ["yeom", "yeom"]),
        ("attacks", ["magic"]),
        ("attacks", [3]),
        ("attacks", "yeom"),
        ("canary_limit", "2"),
        ("references", 3),
        ("references", 257),
        ("references", "16"),
        ("references", True),
        ("references", None),
        ("distances", {"causal-faithfulness": "0.1"}),
        ("distances", {"output-kl": "-1"}),
        ("distances", ["output-kl"]),
        ("fingerprint", {"Method": "x"}),
        ("fingerprint", {"method": 3}),
        ("fingerprint", {"method": "\ud800"}),
        ("fingerprint", "puf"),
    ],
)
def test_a_bad_field_is_named(field: str, value: Any) -> None:
    with pytest.raises(PolicyError) as caught:
        from_document(to_document(FULL) | {field: value})
    named = "minimum_pairs" if (field, value) == ("tail_rate", "0.0001") else field
    assert caught.value.field.split(".")[0] == named
    assert len(str(caught.value)) > len(f"policy: {named}: ")


def test_missing_and_unknown_fields_are_named() -> None:
    document = to_document(FULL)
    del document["alpha"]
    with pytest.raises(PolicyError, match="alpha: add it"):
        from_document(document)
    with pytest.raises(PolicyError, match="document: remove"):
        from_document(to_document(FULL) | {"colour": "red"})


def test_every_change_changes_the_digest() -> None:
    digests = {digest(FULL)}
    changes = {"tau": "0.06", "alpha": "0.01", "attacks": ["lira"], "minimum_pairs": 1001,
               "fingerprint": {}, "canary_limit": None, "references": 8}  # fmt: skip
    for field, value in changes.items():
        digests.add(digest(from_document(to_document(FULL) | {field: value})))
    assert len(digests) == 1 + len(changes)


def test_the_default_is_the_least_margin_that_its_size_can_show() -> None:
    assert [default(rows).tau for rows in (100, 600, 3000, 20_000)] == [0.1, 0.1, 0.05, 0.02]
    assert default(600).minimum_pairs <= 450 < default(100, method="puf").minimum_pairs + 200
    assert default(100).minimum_pairs > 100  # so small a set is refused
    for rows, requests in ((600, 1), (3000, 1), (3000, 3)):
        policy = default(rows, requests=requests)
        level = spent(policy.alpha, requests - 1) / policy.tests()
        assert policy.minimum_pairs >= minimum_pairs(policy.tau, level)
    assert default(9, method="puf").fingerprint == {"method": "puf"}
    assert default(9).attacks == USUAL


def test_the_schema_names_every_field_and_no_other() -> None:
    schema = policy_schema()
    assert sorted(schema["properties"]) == sorted(to_document(FULL))
    assert schema["required"] == sorted(to_document(default(30)))
    assert schema["additionalProperties"] is False
    json.dumps(schema)


@pytest.mark.parametrize("attack", ["lira", "rmia"])
def test_reference_models_are_asked_for_where_they_are_needed_and_only_there(
    attack: str,
) -> None:
    with pytest.raises(PolicyError, match=f"references: {attack} cannot do without"):
        Policy((attack, "yeom"), tau=0.05, minimum_pairs=1000)
    with pytest.raises(PolicyError, match="references: remove it, or add lira or rmia"):
        Policy(("yeom",), tau=0.05, minimum_pairs=1000, references=16)
    with pytest.raises(PolicyError, match="references: lira cannot do without"):
        from_document({k: v for k, v in to_document(FULL).items() if k != "references"})


def test_a_policy_without_reference_models_has_the_digest_that_it_had() -> None:
    # As published before the field existed.
    was = "1584bad38917f71aacd6a0160b992656abf996018f0a2ed4202cb47b30159157"
    assert digest(default(30)) == was
    with_them = default(3000, references=8)
    assert with_them.attacks == tuple(sorted({*USUAL, "lira", "rmia"}))
    assert with_them.references == 8
    level = spent(with_them.alpha, 0) / with_them.tests()
    assert with_them.minimum_pairs >= minimum_pairs(with_them.tau, level)
    assert with_them.minimum_pairs > default(3000).minimum_pairs


# --- the ladder: one spelling, a default by method and size, and no way around it -------
LADDER = (
    LadderStep("puf-special", {"unlearning_rate": 2.5, "guard": {"rise": 2, "shrink": 0.5}}),
    LadderStep("hf-kcu", {"form": "newton", "newton_above": None, "step": 1}),
    LadderStep("puf-special", {"guard": None, "recovery": {"rounds": 0, "within": -0.25}}),
)
WITH_LADDER = Policy(("yeom",), tau=0.1, minimum_pairs=299, ladder=LADDER, budget=0.5)
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
    assert to_document(WITH_LADDER)["ladder"] == WRITTEN
    assert to_document(WITH_LADDER)["budget"] == "0.5"
    assert parse_policy(format_policy(WITH_LADDER)) == WITH_LADDER
    short = to_document(WITH_LADDER) | {"ladder": [{"method": "hf-kcu"}]}
    assert from_document(short).ladder == (LadderStep("hf-kcu"),)


def test_the_api_and_the_judge_have_one_digest() -> None:
    """Check 2 compares the API's digest with the log's."""
    document = to_document(WITH_LADDER)
    terms = VerificationTerms(**document).model_dump()
    assert terms == document
    assert canonical.encode(terms) == format_policy(WITH_LADDER)
    assert digest(from_document(terms)) == digest(WITH_LADDER)


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
        from_document(to_document(WITH_LADDER) | {"ladder": ladder})
    assert caught.value.field == "ladder"


@pytest.mark.parametrize("value", ["-1", "101", 0.5, None])
def test_a_budget_is_a_number_of_retrainings(value: Any) -> None:
    with pytest.raises(PolicyError, match="budget"):
        from_document(to_document(WITH_LADDER) | {"budget": value})


def test_a_document_of_another_form_is_refused() -> None:
    with pytest.raises(PolicyError, match="version"):
        from_document(to_document(WITH_LADDER) | {"version": 1})


@pytest.mark.parametrize(
    "ladder", [[{"method": "retrain"}], [{"method": "sisa"}], [{"method": "magic"}]]
)
def test_the_api_refuses_attempts_that_cannot_be(ladder: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="ladder"):
        VerificationTerms(**{**to_document(WITH_LADDER), "ladder": ladder})


def test_every_attempt_and_the_budget_change_the_digest() -> None:
    changed: list[dict[str, Any]] = [
        {"ladder": WRITTEN[:2]},
        {"ladder": WRITTEN[::-1]},
        {"budget": "0.25"},
    ]
    found = {
        digest(from_document({**to_document(WITH_LADDER), **change})) for change in changed
    }
    assert len(found | {digest(WITH_LADDER)}) == 4


def test_the_default_has_a_ladder_where_a_second_judgement_has_power() -> None:
    cheap = (LadderStep("hf-kcu", {"curvature_rows": 0.1}),)
    assert default(600, method="puf-special").ladder == cheap
    assert default(600, method="puf-regular").ladder == cheap
    assert default(600, method="hf-kcu").ladder == default(600).ladder == ()
    # Nothing has power: every request escalates.
    assert default(30, method="puf-special").ladder == ()
    # 420 rows show a margin of 0.1 once, but not at the alpha of a second judgement.
    once = default(420, method="puf-special")
    assert once.minimum_pairs <= 0.75 * 420 < minimum_pairs(0.1, spent(0.05, 1) / once.tests())
    assert once.ladder == ()


def test_the_schema_says_what_an_attempt_is() -> None:
    attempt = policy_schema()["properties"]["ladder"]["items"]
    assert attempt["required"] == ["method"]
    assert attempt["additionalProperties"] is False
    json.dumps(policy_schema())
