"""OpenAPI says what is answered: by every operation, with every status and scheme.

That it also says all of it, the hook in `conftest.py` checks at each call of these tests.
"""

import json
import re
from typing import Any

import pytest

from app.api.http.openapi import FILES, RAISED, operations
from app.ledger.sequencer import Ledger
from app.main import described
from app.settings import Settings
from lethe.errors import LetheError
from tests.app.api.declared import check_answer
from tests.installation import Installation, install


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """On one database: the description does not depend on it."""
    return sqlite_url


@pytest.fixture
def schema(installation: Installation) -> dict[str, Any]:
    answer = installation.caller.http.get("/openapi.json")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def test_the_site_shows_the_same_document(schema: dict[str, Any]) -> None:
    assert described() == schema


def test_every_reference_leads_somewhere(schema: dict[str, Any]) -> None:
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(schema)))
    assert names <= set(schema["components"]["schemas"])
    assert {"NewRequest", "NewModel", "NewNetwork", "Problem", "Scope"} <= names
    assert "$defs" not in json.dumps(schema)
    assert "HTTPValidationError" not in json.dumps(schema)


def test_the_tables_name_each_operation_and_no_other(schema: dict[str, Any]) -> None:
    names = {operation["operationId"] for operation in operations(schema)}
    assert set(RAISED) == names
    assert set(FILES) <= names


def test_every_problem_of_the_service_is_raised_by_some_operation(
    schema: dict[str, Any],
) -> None:
    text = json.dumps(schema["paths"])

    def problems(kind: type[LetheError]) -> set[str]:
        return {kind.slug}.union(*(problems(narrower) for narrower in kind.__subclasses__()))

    of_service = {
        slug
        for kind in LetheError.__subclasses__()
        if kind.__module__.startswith(("app.service", "lethe.signing", "app.api"))
        # Pages, in no operation.
        and not kind.__module__.startswith(("app.service.intake", "app.api.http.attempts"))
        for slug in problems(kind)
    } - {"signature-refused", "backup"}  # a root, never raised itself; `lethe backup` alone
    assert [slug for slug in sorted(of_service) if slug not in text] == []


def test_a_problem_is_described_as_one(schema: dict[str, Any]) -> None:
    for operation in operations(schema):
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                assert list(answer["content"]) == ["application/problem+json"]
                assert answer["description"].startswith("urn:lethe:problem: ")
            elif status not in ("204", "304"):
                assert list(answer["content"])


def test_each_operation_names_how_it_is_authenticated(schema: dict[str, Any]) -> None:
    schemes = schema["components"]["securitySchemes"]
    assert schemes["bearer"]["type"] == "http"
    assert schemes["httpSignature"]["name"] == "Signature"
    for operation in operations(schema):
        used = {name for one in operation.get("security", []) for name in one}
        # An operator withdraws what they submitted for a person, a signer what they signed.
        assert (
            len(used) == 2 if operation["operationId"] == "withdrawRequest" else len(used) < 2
        )
        assert ("401" in operation["responses"]) == bool(used), operation["operationId"]
        assert ("403" in operation["responses"]) == bool(used), operation["operationId"]


@pytest.mark.parametrize(
    ("status", "media"), [(418, "application/json"), (202, "text/html"), (404, "")]
)
def test_the_check_of_answers_can_fail(schema: dict[str, Any], status: int, media: str) -> None:
    check_answer(schema, "POST", "/v1/requests", 202, "application/json")
    with pytest.raises(AssertionError):
        check_answer(schema, "POST", "/v1/requests", status, media)


def test_the_description_is_built_when_it_is_asked_for(
    settings: Settings, ledger: Ledger
) -> None:
    """It takes longer than the rest of the application."""
    with install(settings) as made:
        app: Any = made.caller.http.app
        assert made.caller.http.get("/healthz").status_code == 200
        assert app.openapi_schema is None
