"""The JSON schema of policy documents, for whoever writes one by hand."""

from typing import Any

from workers.verifier.attacks.registry import ATTACKS
from workers.verifier.distances import DISTANCES
from workers.verifier.policy import COUNTS, DECIMALS
from workers.verifier.policy_form import DECIMAL
from workers.verifier.policy_ladder import FRACTION, MOST_RUNGS, WORD
from workers.verifier.policy_references import LEAST, MOST, NAME, WORDS


def policy_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of policy documents; ranges stand in words."""
    decimal = {"type": "string", "pattern": f"^{DECIMAL.pattern}$"}
    properties: dict[str, Any] = {
        name: {**decimal, "description": f"{words}; from {low:g} to {high:g}"}
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
    properties["canary_limit"] = {"anyOf": [decimal, {"type": "null"}]}
    properties["distances"] = {
        "type": "object",
        "properties": {name: decimal for name in sorted(DISTANCES)},
        "additionalProperties": False,
    }
    setting = {
        "anyOf": [
            {"type": ["boolean", "integer", "null"]},
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
                "method": {"type": "string", "pattern": f"^{WORD.pattern}$"},
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
    }
