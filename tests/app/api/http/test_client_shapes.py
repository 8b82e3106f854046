"""The client expects of each answer what the service describes (OpenAPI)."""

from typing import Any

from app.main import described
from lethe.client.shapes import calls, fields_of

PLAIN = {"string": "str", "integer": "int", "number": "num", "boolean": "bool"}
# Narrower than the service's description, which leaves a configuration to the family.
NARROWER = {"ModelView.config": "ModelConfig"}
# What reads these checks them whole.
WHOLE = ("GET /v1/log/entries", "GET /v1/rounds/{round_id}/work")
# Other proofs, which no client asks for, and probes, which only read the status.
OTHERS = ("/v1/log/", "/v1/certificates/", "/healthz", "/readyz")


def kind_of(schema: dict[str, Any], seen: set[str]) -> str:
    """Return a JSON schema in the words of `lethe.client.shapes`; adds the shapes it names."""
    if "$ref" in schema:
        name: str = schema["$ref"].rpartition("/")[2]
        seen.add(name)
        return name
    if "anyOf" in schema:
        (one,) = [one for one in schema["anyOf"] if one.get("type") != "null"]
        return f"{kind_of(one, seen)}?"
    if schema.get("type") == "array":
        return f"[{kind_of(schema['items'], seen)}]"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return f"{{{kind_of(values, seen) if isinstance(values, dict) else 'any'}}}"
    return PLAIN.get(schema.get("type", ""), "any")


def answer_of(schema: dict[str, Any], components: dict[str, Any], seen: set[str]) -> str:
    """Return the type of an answer; a page of X is X*."""
    name = schema.get("$ref", "").rpartition("/")[2]
    if not name.startswith("Page_"):
        return kind_of(schema, seen)
    return f"{kind_of(components[name]['properties']['items'], seen)[1:-1]}*"


def test_the_client_expects_what_the_service_describes() -> None:
    document = described()
    components = document["components"]["schemas"]
    waiting: set[str] = set()
    expected = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for status, answer in operation["responses"].items():
                schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
                is_object = "$ref" in schema or schema.get("type") == "object"
                call = f"{method.upper()} {path}"
                if call in WHOLE:
                    expected[call] = "{any}"
                elif status[0] == "2" and is_object and not path.startswith(OTHERS):
                    expected[call] = answer_of(schema, components, waiting)
    assert calls() == expected
    checked: set[str] = set()
    while names := waiting - checked:
        for name in names:
            checked.add(name)
            shape = {
                field: NARROWER.get(f"{name}.{field}", kind_of(schema, waiting))
                for field, schema in components[name]["properties"].items()
            }
            assert fields_of(name) == shape, name
