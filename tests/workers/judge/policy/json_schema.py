"""A minimal JSON schema validator for the keywords that the policy's schema uses."""

import re
from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "null": (type(None),),
    "object": (dict,),
    "string": (str,),
}
WORDS = {"$schema", "title", "description"}


def accepts(schema: dict[str, Any], value: Any) -> bool:
    """Return whether a value is valid (draft 2020-12).

    Raises AssertionError for other keywords.
    """
    for keyword, said in schema.items():
        if keyword in WORDS | {"then", "else"}:  # the last two belong to "if"
            continue
        if not holds(keyword, said, schema, value):
            return False
    return True


def holds(keyword: str, said: Any, schema: dict[str, Any], value: Any) -> bool:
    number = isinstance(value, int) and not isinstance(value, bool)
    match keyword:
        case "type":
            return any(
                is_type(value, kind) for kind in ([said] if isinstance(said, str) else said)
            )
        case "enum" | "const":
            return value in (said if keyword == "enum" else [said])
        case "pattern":
            return not isinstance(value, str) or re.search(said, value) is not None
        case "minimum":
            return not number or value >= said
        case "maximum":
            return not number or value <= said
        case "minItems":
            return not isinstance(value, list) or len(value) >= said
        case "maxItems":
            return not isinstance(value, list) or len(value) <= said
        case "uniqueItems":
            return not isinstance(value, list) or all(
                one not in value[:place] for place, one in enumerate(value)
            )
        case "items":
            return not isinstance(value, list) or all(accepts(said, one) for one in value)
        case "contains":
            return not isinstance(value, list) or any(accepts(said, one) for one in value)
        case "required":
            return not isinstance(value, dict) or set(said) <= set(value)
        case "properties":
            return not isinstance(value, dict) or all(
                accepts(said[name], value[name]) for name in said.keys() & value.keys()
            )
        case "additionalProperties":
            others = (
                value.keys() - schema.get("properties", {}) if is_type(value, "object") else ()
            )
            return all(bool(said) and accepts(said, value[name]) for name in others)
        case "anyOf":
            return any(accepts(one, value) for one in said)
        case "allOf":
            return all(accepts(one, value) for one in said)
        case "not":
            return not accepts(said, value)
        case "if":
            return accepts(schema["then" if accepts(said, value) else "else"], value)
    raise AssertionError(f"no such keyword here: {keyword}")


def is_type(value: Any, kind: str) -> bool:
    return isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
