"""Compares what is answered with what OpenAPI says that may be answered."""

import re
from collections.abc import Callable
from typing import Any

from httpx2 import Response

Schema = dict[str, Any]


def operation_of(schema: Schema, method: str, path: str) -> Schema | None:
    """Return the operation that a call is of; literal paths come before templates."""
    for template in sorted(schema["paths"], key=lambda name: name.count("{")):
        parts = [
            ".+" if name == "{path}" else "[^/]+" if name.startswith("{") else re.escape(name)
            for name in re.split(r"(\{[^}]*\})", template)
        ]
        if re.fullmatch("".join(parts), path):
            found: Schema | None = schema["paths"][template].get(method.lower())
            return found
    return None


def check_answer(schema: Schema, method: str, path: str, status: int, media: str) -> None:
    """Fail unless an operation's status and content type are in its description."""
    operation = operation_of(schema, method, path)
    if operation is None:
        return
    name = operation["operationId"]
    assert str(status) in operation["responses"], f"{name} answered {status}, undeclared"
    content = operation["responses"][str(status)].get("content", {})
    assert media in content or not (media or content), f"{name} {status} answered {media}"


def checking(schema: Schema) -> Callable[[Response], None]:
    """Return a hook for a test client that checks every answer."""

    def check(response: Response) -> None:
        request = response.request
        media = response.headers.get("content-type", "")
        check_answer(schema, request.method, request.url.path, response.status_code, media)

    return check
