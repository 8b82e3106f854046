"""The JSON document of a policy: its canonical encoding, its digest and its schema.

Sorted keys, no blanks, whole numbers as numbers, all other numbers as quoted decimals, so that
no two programs print them differently.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from lethe.catalogue import DISTANCES
from workers.judge.attacks.registry import ATTACKS, NEED_REFERENCES
from workers.judge.policy.policy import (
    ABOUT_REFERENCES,
    ABOUT_SETTINGS,
    CANARY,
    COUNTS,
    DECIMALS,
    DISTANCE,
    FRACTION,
    LADDER,
    LAST,
    LEAST_REFERENCES,
    MOST_REFERENCES,
    MOST_STEPS,
    MOST_WHOLE,
    REFERENCES,
    WORD,
    LadderStep,
    Policy,
    PolicyError,
    Setting,
    mapping,
    spelled,
)

DECIMAL = re.compile(r"(0|[1-9][0-9]{0,8})(\.[0-9]{1,20})?")
# As the service accepts them: shorter than `DECIMAL`, with one spelling per value.
SPELLED = r"(0|[1-9][0-9]{0,8})(\.[0-9]{0,15}[1-9])?"


def format_policy(policy: Policy) -> bytes:
    """Return the canonical encoding of a policy."""
    document = to_document(policy)
    text = json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode()


def parse_policy(data: bytes) -> Policy:
    """Parse the canonical encoding of a policy. Raises PolicyError for any other bytes."""
    try:
        policy = from_document(json.loads(data))
    except (ValueError, RecursionError):  # not UTF-8, not JSON, too deep, or too many digits
        raise PolicyError("document", "write JSON in UTF-8") from None
    if format_policy(policy) != data:
        raise PolicyError("document", "write it as format_policy does: sorted, without blanks")
    return policy


def digest(policy: Policy) -> str:
    """Return the hex SHA-256 of the policy's canonical encoding."""
    return hashlib.sha256(format_policy(policy)).hexdigest()


def to_document(policy: Policy) -> dict[str, Any]:
    """Return the policy as a JSON object."""
    document: dict[str, Any] = {
        entry.name: getattr(policy, entry.name) for entry in fields(policy)
    }
    document["attacks"] = list(policy.attacks)
    for name in DECIMALS:
        document[name] = spelled(getattr(policy, name))
    if policy.canary_limit is not None:
        document["canary_limit"] = spelled(policy.canary_limit)
    document["ladder"] = write_ladder(policy.ladder)
    document["fingerprint"] = dict(policy.fingerprint)
    document["distances"] = {k: spelled(v) for k, v in policy.distances.items()}
    if policy.references is None:
        del document[REFERENCES]
    return document


def from_document(document: object) -> Policy:
    """Return the policy of parsed JSON. Raises PolicyError.

    Every field is required, except `references`, which is present iff there are any.
    """
    if not isinstance(document, dict):
        raise PolicyError("document", "write a JSON object")
    names = {entry.name for entry in fields(Policy)}
    if names.isdisjoint(document):
        raise PolicyError("document", "give a policy: `lethe policy default` writes one")
    for name in sorted(map(str, (names ^ set(document)) - {REFERENCES})):
        known = name in names
        raise PolicyError(
            name if known else "document",
            "add it" if known else "remove what is no field of a policy",
        )
    values = dict(document)
    if values.get(REFERENCES, 0) is None:
        raise PolicyError(REFERENCES, "leave it out where there are none")
    attacks = values["attacks"]
    if not isinstance(attacks, list):
        raise PolicyError("attacks", "write a list of names")
    values["attacks"] = tuple(attacks)
    values["ladder"] = read_ladder(values["ladder"])
    for name in DECIMALS:
        values[name] = decimal(name, values[name])
    if values["canary_limit"] is not None:
        values["canary_limit"] = decimal("canary_limit", values["canary_limit"])
    limits = mapping("distances", values["distances"])
    values["distances"] = {k: decimal("distances", v) for k, v in limits.items()}
    return Policy(**values)


def write_ladder(ladder: Sequence[LadderStep]) -> list[dict[str, Any]]:
    """Return the steps as JSON values."""
    return [
        {
            "method": step.method,
            "settings": {
                name: (
                    {key: _write(one) for key, one in value.items()}
                    if isinstance(value, Mapping)
                    else _write(value)
                )
                for name, value in step.settings.items()
            },
        }
        for step in ladder
    ]


def read_ladder(document: object) -> tuple[LadderStep, ...]:
    """Return the steps of parsed JSON. Raises PolicyError."""
    if not isinstance(document, list):
        raise PolicyError(LADDER, "write a list of steps, [] for the retraining alone")
    found = []
    for item in document:
        given = dict(mapping(LADDER, item))
        settings = mapping(LADDER, given.pop("settings", {}))
        method = given.pop("method", None)
        if given or not isinstance(method, str):
            raise PolicyError(LADDER, "a step has a method, perhaps settings, and no more")
        read = {
            name: (
                {key: _read(one) for key, one in value.items()}
                if isinstance(value, Mapping)
                else _read(value)
            )
            for name, value in settings.items()
        }
        found.append(LadderStep(method, read))
    return tuple(found)


def _write(value: Setting) -> Setting:
    return spelled(value) if isinstance(value, float) else value


def _read(value: object) -> Any:
    """Return a setting; an invalid one is left for `LadderStep` to refuse."""
    if isinstance(value, float):
        raise PolicyError(LADDER, ABOUT_SETTINGS)
    if isinstance(value, str) and FRACTION.fullmatch(value):
        if spelled(float(value)) != value:
            raise PolicyError(LADDER, ABOUT_SETTINGS)
        return float(value)
    return value


def decimal(name: str, value: object) -> float:
    """Return the value of a quoted decimal. Raises PolicyError."""
    if not isinstance(value, str) or not DECIMAL.fullmatch(value):
        raise PolicyError(name, 'write a decimal in quotes, such as "0.05"')
    return float(value)


def policy_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of policy documents, with all numbers' ranges.

    `from_document` alone checks that attacks are sorted, how many pairs the tail rate needs,
    and which words a fingerprint may hold.
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
        "maxItems": MOST_STEPS,
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
    properties[REFERENCES] = {
        "type": "integer",
        "minimum": LEAST_REFERENCES,
        "maximum": MOST_REFERENCES,
        "description": ABOUT_REFERENCES,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Lethe verification policy",
        "type": "object",
        "properties": dict(sorted(properties.items())),
        "required": required,
        "additionalProperties": False,
        # Reference models are present iff one of these attacks is.
        "if": {"properties": {"attacks": {"contains": {"enum": sorted(NEED_REFERENCES)}}}},
        "then": {"required": [REFERENCES]},
        "else": {"not": {"required": [REFERENCES]}},
    }


# --- ranges ------------------------------------------------------------------------------
# JSON schemas compare only numbers, so ranges of quoted decimals are regular expressions. An
# expression describes one bound, for canonical decimals: no leading zeros, no zeros after the
# last significant digit. It only uses syntax shared by ECMA 262 and RE2.
def decimal_schema(low: float, high: float) -> dict[str, Any]:
    """Return the JSON schema of quoted decimals from `low` to `high`, both 0 or more."""
    ends = [{"pattern": f"^({at_most(spelled(high))})$"}]
    if low > 0:
        ends.insert(0, {"pattern": f"^({at_least(spelled(low))})$"})
    return {"type": "string", "pattern": f"^{SPELLED}$", "allOf": ends}


def at_least(bound: str) -> str:
    """Return a regular expression for the decimals that are `bound` or more."""
    whole, _, fraction = bound.partition(".")
    above = [f"[1-9][0-9]{{{len(whole)},}}"]
    above += [f"{first}[0-9]{{{rest}}}" for first, rest in _other(whole, larger=True)]
    found = [f"({'|'.join(above)})(\\.[0-9]+)?"]
    if fraction:
        same = [fraction, *(first for first, _ in _other(fraction, larger=True))]
        found.append(f"{whole}\\.({'|'.join(same)})[0-9]*")
    else:
        found.append(f"{whole}(\\.[0-9]+)?")
    return "|".join(found)


def at_most(bound: str) -> str:
    """Return a regular expression for the decimals that are `bound` or less."""
    whole, _, fraction = bound.partition(".")
    single = len(whole) == 1
    below = [] if single else ["0", f"[1-9][0-9]{{0,{len(whole) - 2}}}"]
    below += [
        f"{first}[0-9]{{{rest}}}" for first, rest in _other(whole, larger=False, zero=single)
    ]
    found = [f"({'|'.join(below)})(\\.[0-9]+)?"] if below else []
    # The same digits, ending earlier, are less.
    same = [fraction[:size] for size in range(1, len(fraction) + 1)]
    same += [f"{first}[0-9]*" for first, _ in _other(fraction, larger=False)]
    found.append(f"{whole}(\\.({'|'.join(same)}))?" if fraction else whole)
    return "|".join(found)


def _other(digits: str, *, larger: bool, zero: bool = True) -> list[tuple[str, int]]:
    """Return an expression for each position where digits may first differ, and the rest.

    The digit there is larger, or less; zero: whether the very first may be 0.
    """
    found = []
    for place, digit in enumerate(digits):
        least = 0 if place or zero else 1
        low, high = (int(digit) + 1, 9) if larger else (least, int(digit) - 1)
        if low <= high:
            found.append((f"{digits[:place]}[{low}-{high}]", len(digits) - place - 1))
    return found
