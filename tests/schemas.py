"""JSON Schema's validator, imported by the first test that asks for it.

With its checks of formats the import takes four seconds, and each process of the tests imports
the modules of all tests.
"""

from collections.abc import Mapping
from typing import Any


def validator(schema: Mapping[str, Any]) -> Any:
    """Return a validator of draft 2020-12. Raises SchemaError for what is no schema."""
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)
