"""The JSON schema of policy documents, for whoever writes one by hand."""

from typing import Any

from workers.judge.attacks.registry import ATTACKS, NEED_REFERENCES
from workers.judge.policy.ladder import FRACTION, LAST, MOST_RUNGS, MOST_WHOLE, WORD
from workers.judge.policy.policy import CANARY, COUNTS, DECIMALS, DISTANCE
from workers.judge.policy.ranges import decimal_schema
from workers.judge.policy.references import LEAST, MOST, NAME, WORDS
from workers.judge.samples.distances import DISTANCES


def policy_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of policy documents, with all numbers' ranges.

    Left to `policy.from_document`: that attacks are sorted, how many pairs the tail rate
    needs, and which words a fingerprint may hold.
    """
    properties: dict[str, Any] = {
        name: {
            **decimal_schema(low, high),
            "description": f"{words}; from {low:g} to {high:g}",
        }
        for name, (low, high, words) in DECIMALS.items()
    }
    for name, (least, most, words) in COUNTS.items():
        properties[name] = {
            "type": "integer",
            "minimum": least,
            "maximum": most,
            "description": words,
        }
    properties["attacks"] = {
        "type": "array",
        "items": {"enum": sorted(ATTACKS)},
        "minItems": 1,
        "uniqueItems": True,
    }
    properties["canary_limit"] = {"anyOf": [decimal_schema(*CANARY), {"type": "null"}]}
    properties["distances"] = {
        "type": "object",
        "properties": {name: decimal_schema(*DISTANCE) for name in sorted(DISTANCES)},
        "additionalProperties": False,
    }
    setting = {
        "anyOf": [
            {"type": ["boolean", "null"]},
            {"type": "integer", "minimum": -MOST_WHOLE, "maximum": MOST_WHOLE},
            {"type": "string", "pattern": f"^({WORD.pattern}|{FRACTION.pattern})$"},
        ]
    }
    members = {"type": "object", "additionalProperties": setting}
    properties["ladder"] = {
        "type": "array",
        "maxItems": MOST_RUNGS,
        "uniqueItems": True,
        "description": "methods tried before the retraining, which is never left out",
        "items": {
            "type": "object",
            "properties": {
                "method": {
                    "type": "string",
                    "pattern": f"^{WORD.pattern}$",
                    "not": {"const": LAST},
                },
                "settings": {
                    "type": "object",
                    "additionalProperties": {"anyOf": [*setting["anyOf"], members]},
                },
            },
            "required": ["method"],
            "additionalProperties": False,
        },
    }
    properties["fingerprint"] = {"type": "object", "additionalProperties": {"type": "string"}}
    required = sorted(properties)
    properties[NAME] = {
        "type": "integer",
        "minimum": LEAST,
        "maximum": MOST,
        "description": WORDS,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Lethe verification policy",
        "type": "object",
        "properties": dict(sorted(properties.items())),
        "required": required,
        "additionalProperties": False,
        # Reference models are for these attacks, and for these alone.
        "if": {"properties": {"attacks": {"contains": {"enum": sorted(NEED_REFERENCES)}}}},
        "then": {"required": [NAME]},
        "else": {"not": {"required": [NAME]}},
    }
