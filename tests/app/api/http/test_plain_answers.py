"""Filters that name nothing, tags that match weakly, JSON with one meaning."""

import json
from typing import Any

import pytest

from tests.app.api.test_requests import problem
from tests.installation import Installation
from tests.small import MODEL, manifest, pack, rows

TWICE = "an object has a name twice"


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("state=certifed", 422),
        ("method=ridge", 422),
        ("model=smal", 404),
        ("ref=00000000-0000-4000-8000-000000000000", 404),
    ],
)
def test_a_filter_that_names_nothing_is_an_error(
    ready: Installation, query: str, status: int
) -> None:
    answer = ready.caller.operator("GET", f"/v1/requests?{query}")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_filter_of_a_known_value_may_find_nothing(ready: Installation) -> None:
    request = ready.caller.erase_records("r1").json()
    for query in (
        "state=failed",
        "state=needs-decision",
        "method=acu",
        "method=puf-special",
        f"model={MODEL}&state=certified",
        f"ref={request['ref']}&overdue=true",
    ):
        answer = ready.caller.operator("GET", f"/v1/requests?{query}")
        assert (answer.status_code, answer.json()["items"]) == (200, []), query


@pytest.mark.parametrize("query", ["ref=nobody", "event=request.recieved", "kind=events"])
def test_a_filter_of_the_log_that_names_nothing_is_an_error(
    ready: Installation, query: str
) -> None:
    problem(ready.caller.http.get(f"/v1/log/entries?{query}"), 404, "not-found")
    answer = ready.caller.http.get("/v1/log/entries?event=model.version&until=2020-01-01")
    assert (answer.status_code, answer.json()["items"]) == (200, [])


def test_a_weak_tag_matches(ready: Installation) -> None:
    answer = ready.caller.http.get("/v1/log/tile/0/000.p/1")
    tag = answer.headers["etag"]
    for sent, status in (
        (tag, 304),
        (f"W/{tag}", 304),
        (f'"other", W/{tag}', 304),
        (f'W/"a, b",{tag}', 304),
        (" * ", 304),
        ('"other"', 200),
        (f'"*", {tag[:-1]}', 200),
        ("W/", 200),
    ):
        again = ready.caller.http.get("/v1/log/tile/0/000.p/1", headers={"if-none-match": sent})
        assert again.status_code == status, sent
    both = [("if-none-match", '"other"'), ("if-none-match", f"W/{tag}")]
    assert ready.caller.http.get("/v1/log/tile/0/000.p/1", headers=both).status_code == 304


def twice(document: dict[str, Any], name: str, value: Any) -> bytes:
    text = json.dumps(document)
    return f"{text[:-1]}, {json.dumps(name)}: {json.dumps(value)}}}".encode()


def test_a_request_that_says_two_things_is_refused(ready: Installation) -> None:
    body = {"model": MODEL, "scope": {"level": "sample", "records": ["r1"]}}
    sent = twice(body, "scope", {"level": "client", "client": "c1"})
    answer = problem(ready.caller.signed("POST", "/v1/requests", sent), 422, "body-invalid")
    assert answer["errors"][0]["problem"] == TWICE
    inner = json.dumps(body).replace(
        '"level": "sample"', '"level": "client", "level": "sample"'
    )
    answer = problem(
        ready.caller.signed("POST", "/v1/requests", inner.encode()), 422, "body-invalid"
    )
    assert answer["errors"][0]["problem"] == TWICE


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/keys", {"keyid": "k"}),
        ("/v1/rounds", {"model": MODEL}),
        ("/v1/audits", {"model": MODEL}),
        ("/v1/requests/nobody/decision", {"decision": "retry", "why": "so"}),
    ],
)
def test_an_operator_s_body_that_says_two_things_is_refused(
    ready: Installation, path: str, body: dict[str, Any]
) -> None:
    sent = twice(body, next(iter(body)), "other")
    kind = {"content-type": "application/json"}
    answer = ready.caller.operator("POST", path, content=sent, headers=kind)
    assert problem(answer, 422, "body-invalid")["errors"][0]["problem"] == TWICE


def test_a_manifest_that_says_two_things_is_refused(ready: Installation) -> None:
    for name, value in (("penalty", 9.0), ("family", "network")):
        sent = twice(manifest(ref="other"), name, value)
        if name == "family":
            sent = twice(manifest(ref="other", family="ridge"), name, value)
        files = {"data": ("rows.npz", pack(rows()))}
        answer = ready.caller.operator(
            "POST", "/v1/models", files=files, data={"manifest": sent.decode()}
        )
        assert problem(answer, 422, "body-invalid")["errors"][0]["problem"] == TWICE
