"""Answers of any shape become values or an AnswerError."""

from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.client.answers import (
    Progress,
    parse_page,
    parse_preview,
    parse_problem,
    parse_progress,
    parse_receipt,
    parse_status,
    parse_summary,
)
from lethe.client.errors import AnswerError, ProblemError

RECEIPT: dict[str, Any] = {
    "id": "1",
    "ref": "r",
    "state": "received",
    "due_at": "2027-01-02T03:04:05Z",
    "receipt": {
        "log_index": 5,
        "tree_size": 9,
        "leaf": "AAEC",
        "hashes": ["AAEC"],
        "checkpoint": "note",
    },
    "warnings": ["it is cold outside"],
}
STATUS: dict[str, Any] = {
    "id": "1",
    "state": "certified",
    "model": "digits",
    "ref": "R",
    "received_at": "2026-12-02T03:04:05Z",
    "method": "ridge-exact",
    "scope": {"level": "client", "client": "c"},
    "due_at": "2027-01-02T04:04:05+01:00",
    "history": [{"event": "request.received", "at": "2026-12-02T03:04:05Z", "log_index": 5}],
    "certificate": "/v1/requests/1/certificate",
    "something": "new",
}
DUE = datetime(2027, 1, 2, 3, 4, 5, tzinfo=UTC)


def answered(document: object) -> httpx2.Response:
    return httpx2.Response(200, json=document)


def test_a_receipt_is_read() -> None:
    receipt = parse_receipt(answered(RECEIPT))
    assert (receipt.id, receipt.ref, receipt.state, receipt.due_at) == (
        "1",
        "r",
        "received",
        DUE,
    )
    assert receipt.receipt.leaf == b"\0\1\2"
    assert receipt.receipt.hashes == (b"\0\1\2",)
    assert receipt.warnings == ("it is cold outside",)
    assert receipt.document == RECEIPT


def test_a_status_is_read_and_what_is_new_is_kept() -> None:
    status = parse_status(answered(STATUS))
    assert status.due_at == DUE
    assert status.final
    assert status.history[0].log_index == 5
    assert status.document["something"] == "new"
    assert parse_status(answered(STATUS | {"certificate": None})).certificate is None


def test_a_certificate_that_waits_for_witnesses_is_waited_for() -> None:
    assert not parse_status(answered(STATUS | {"certificate": None})).final
    assert parse_status(answered(STATUS | {"certificate": None, "state": "refused"})).final


def changed(document: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """document with the value at a dotted path replaced, or removed if it is ..."""
    head, _, rest = path.partition(".")
    if rest:
        return document | {head: changed(document[head], rest, value)}
    copy = document | {head: value}
    if value is ...:
        del copy[head]
    return copy


BAD_RECEIPTS = [
    ("no id", "id", ...),
    ("id a number", "id", 1),
    ("no ref", "ref", None),
    ("due without zone", "due_at", "2027-01-02T03:04:05"),
    ("due no time", "due_at", "soon"),
    ("due before time", "due_at", "0001-01-01T00:00:00+23:59"),
    ("no receipt", "receipt", None),
    ("receipt a list", "receipt", []),
    ("index a string", "receipt.log_index", "5"),
    ("index true", "receipt.log_index", True),
    ("size a float", "receipt.tree_size", 9.0),
    ("leaf not base64", "receipt.leaf", "%"),
    ("hash a number", "receipt.hashes", [1]),
    ("hashes a string", "receipt.hashes", "AAEC"),
    ("no checkpoint", "receipt.checkpoint", ...),
    ("no warnings", "warnings", ...),
    ("warnings a string", "warnings", "cold"),
    ("warnings of numbers", "warnings", [1]),
]


@pytest.mark.parametrize(
    ("path", "value"), [row[1:] for row in BAD_RECEIPTS], ids=[r[0] for r in BAD_RECEIPTS]
)
def test_a_receipt_of_another_shape_is_refused(path: str, value: object) -> None:
    with pytest.raises(AnswerError):
        parse_receipt(answered(changed(RECEIPT, path, value)))


PROGRESS = {"phase": "recovery", "done": 1, "total": 2, "unit": "rounds"}


def test_progress_is_read_where_there_is_any() -> None:
    assert parse_status(answered(STATUS)).progress is None  # an older service's
    assert parse_status(answered(STATUS | {"progress": None})).progress is None
    found = parse_status(answered(STATUS | {"progress": PROGRESS})).progress
    assert found == Progress("recovery", 1, 2, "rounds")
    assert str(found) == "recovery, 1 of 2 rounds done"


BAD_STATUSES = [
    ("no state", "state", ...),
    ("scope a list", "scope", []),
    ("history an object", "history", {}),
    ("event a string", "history", ["request.received"]),
    ("event without index", "history", [{"event": "e", "at": "2026-12-02T03:04:05Z"}]),
    ("certificate a number", "certificate", 1),
    ("method a list", "method", []),
    ("progress a number", "progress", 3),
    ("progress of no phase", "progress", {"done": 1, "total": 2, "unit": "rounds"}),
    ("progress by words", "progress", PROGRESS | {"done": "1"}),
    ("progress of a truth", "progress", PROGRESS | {"total": True}),
]


@pytest.mark.parametrize(
    ("path", "value"), [row[1:] for row in BAD_STATUSES], ids=[r[0] for r in BAD_STATUSES]
)
def test_a_status_of_another_shape_is_refused(path: str, value: object) -> None:
    with pytest.raises(AnswerError):
        parse_status(answered(changed(STATUS, path, value)))


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"null", b'"x"', b"\xff", b"[" * 100_000]
)
def test_what_is_no_object_is_refused(body: bytes) -> None:
    response = httpx2.Response(200, content=body)
    for parse in (parse_receipt, parse_status, parse_page):
        with pytest.raises(AnswerError):
            parse(response)


@pytest.mark.parametrize(
    "document",
    [{}, {"items": {}}, {"items": [1]}, {"items": [], "next": 1}, {"items": None}],
)
def test_what_is_no_list_is_refused(document: object) -> None:
    with pytest.raises(AnswerError):
        parse_page(answered(document))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.sampled_from(sorted(STATUS)), JSON)
@settings(deadline=None)
def test_any_field_may_hold_anything(name: str, value: object) -> None:
    try:
        status = parse_status(answered(STATUS | {name: value}))
    except AnswerError:
        return
    assert status.document[name] == value


@given(JSON)
@settings(deadline=None)
def test_any_refusal_is_a_problem(document: object) -> None:
    problem = parse_problem(httpx2.Response(418, json=document))
    assert problem.status == 418
    assert problem.detail


def test_a_problem_keeps_what_the_service_said() -> None:
    problem = parse_problem(
        httpx2.Response(
            409,
            json={
                "type": "urn:lethe:problem:already-erased",
                "title": "Already erased",
                "status": 409,
                "detail": "see the earlier request",
                "request": "0190",
                "self": 1,
            },
        )
    )
    assert (problem.status, problem.slug) == (409, "already-erased")
    assert (problem.title, problem.detail) == ("Already erased", "see the earlier request")
    assert problem.members == {"request": "0190", "self": 1}


def test_a_problem_names_each_place_and_what_is_wrong_there() -> None:
    errors: list[Any] = [
        {"place": "body.ref", "problem": "too long\x1b"},
        {"place": "body.classes"},
        1,
    ]
    document = {"type": "urn:lethe:problem:body-invalid", "detail": "no shape: see `errors`"}
    problem = parse_problem(httpx2.Response(422, json={**document, "errors": errors}))
    assert problem.detail == "no shape: body.ref: too long\N{REPLACEMENT CHARACTER}"
    assert list(problem.members) == ["errors"]
    others: list[Any] = [[], "text", {"place": "a", "problem": "b"}]
    for none in others:
        problem = parse_problem(httpx2.Response(422, json={**document, "errors": none}))
        assert problem.detail == "no shape: see `errors`"


@pytest.mark.parametrize(
    ("said", "places"),
    [
        ("1, 3", [1, 3]),
        ("0, 4, -1, 01, x, ", []),
        ("\u00b2, \u0662, 1_0", []),  # digits to str.isdigit, or to int
        ("9" * 5000, []),
        ([2], []),
        (2, [2]),
    ],
)
def test_places_are_those_of_the_list_that_was_sent(said: object, places: list[int]) -> None:
    error = ProblemError(404, "record-unknown", "title", "detail", {"places": said})
    assert error.places(3) == places


def test_the_page_of_a_proxy_is_a_problem_without_a_name() -> None:
    problem = parse_problem(httpx2.Response(502, content=b"<h1>Bad Gateway</h1>"))
    assert (problem.status, problem.slug, problem.title) == (502, "unspecified", "HTTP 502")
    assert "gave no reason" in problem.detail


@pytest.mark.parametrize("name", ["", "=1+1", "\x1b[2J", "a b", "a" * 81, "Busy"])
def test_a_problem_has_a_name_of_the_documented_form_or_none(name: str) -> None:
    """`lethe drop process` writes it to a table."""
    problem = parse_problem(httpx2.Response(409, json={"type": f"urn:lethe:problem:{name}"}))
    assert problem.slug == "unspecified"


@pytest.mark.parametrize("number", [-1, 10**400, 2**63, 1.5, True])
def test_progress_counts_what_can_be_shown(number: Any) -> None:
    """A bar divides the two, and floats have a limit."""
    progress = {"phase": "p", "done": 1, "total": 2, "unit": "u"}
    assert parse_progress({"progress": progress}) == Progress("p", 1, 2, "u")
    for name in ("done", "total"):
        with pytest.raises(AnswerError, match=name):
            parse_progress({"progress": {**progress, name: number}})


def test_a_preview_below_what_is_needed_has_a_warning() -> None:
    """Commands print the first one."""
    document = {"method": "m", "records": 1, "pairs": 0, "needed": 9, "warnings": ["few"]}
    assert not parse_preview(answered(document)).certifiable
    with pytest.raises(AnswerError, match="warnings"):
        parse_preview(answered({**document, "warnings": []}))


def test_a_problem_cannot_paint_the_terminal() -> None:
    problem = parse_problem(httpx2.Response(400, json={"detail": "\x1b[2Jall is well"}))
    assert "\x1b" not in problem.detail


def test_a_summary_is_read() -> None:
    summary = parse_summary(STATUS)
    assert (summary.id, summary.state, summary.model, summary.due_at) == (
        "1",
        "certified",
        "digits",
        DUE,
    )
    assert parse_summary({**STATUS, "id": None}).id is None  # to an auditor
    with pytest.raises(AnswerError):
        parse_summary({"id": "1"})
