"""The scope `officer`: decides and reads, and changes neither models nor keys."""

from typing import Any

import pytest

from tests.installation import Installation, make_token

NOBODY = {"person": {"kind": "email", "sha256": "0" * 64}}
MAY = [
    ("POST", "/v1/people/find", NOBODY),
    ("POST", "/v1/cases", {**NOBODY, "ticket": "T-1"}),
    ("POST", "/v1/cases/search", {}),
    ("GET", "/v1/requests", None),
    ("GET", "/v1/models", None),
    ("GET", "/v1/audits", None),
    ("GET", "/v1/rounds", None),
    ("GET", "/v1/keys", None),
    ("GET", "/v1/reports/period?from=2026-01-01&to=2026-01-31", None),
    ("GET", "/metrics", None),
]
MAY_NOT = [
    ("POST", "/v1/keys", {}),
    ("DELETE", "/v1/keys/alice", None),
    ("POST", "/v1/models", {}),
    ("DELETE", "/v1/models/small", None),
    ("GET", "/v1/releases", None),
    ("POST", "/v1/audits", {}),
    ("POST", "/v1/rounds", {}),
    ("POST", "/v1/people/import", {}),
    ("POST", "/v1/people/remove-held-out", {}),
    ("POST", "/v1/requests/x/decision", {"decision": "retry", "why": "x"}),
]


def call(ready: Installation, scope: str, method: str, path: str, body: Any) -> int:
    """Return the status that a token of this scope is answered with."""
    token = make_token(ready.services, scope)
    sent = ready.caller.http.request(
        method, path, json=body, headers={"authorization": f"Bearer {token}"}
    )
    return sent.status_code


def test_an_officer_decides_and_reads(ready: Installation) -> None:
    for method, path, body in MAY:
        assert call(ready, "officer", method, path, body) in (200, 201), path


def test_an_officer_changes_no_model_and_no_key(ready: Installation) -> None:
    for method, path, body in MAY_NOT:
        assert call(ready, "officer", method, path, body) == 403, path


@pytest.mark.parametrize("path", ["/v1/cases/x/approve", "/v1/cases/search"])
def test_an_auditor_decides_nothing(ready: Installation, path: str) -> None:
    assert call(ready, "auditor", "POST", path, {}) == 403
