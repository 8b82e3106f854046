"""The history over HTTP: ranges with their proof, filters without one, and the client's check."""

from typing import Any

import pytest
from sqlalchemy import event
from sqlmodel import Session, select

from app.service.issued import public_log
from lethe.canonical import parse_base64
from lethe.client import EntryFilter
from lethe.log.proofs import ProofError, check_inclusion
from lethe.log.ranges import check_range, read_range
from lethe.log.tree import leaf_hash
from models import LogCheckpoint
from tests.app.api.test_requests import problem
from tests.app.ledger.samples import tamper
from tests.installation import Installation


def get(ready: Installation, query: str = "") -> Any:
    answer = ready.caller.http.get(f"/v1/log/entries?{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def check(ready: Installation, page: Any) -> tuple[int, int]:
    """Check a page as a reader would and return its range."""
    head = ready.services.ledger.open(page["checkpoint"])
    assert page["tree_size"] == head.size
    proof = read_range(page["completeness"]["range"])
    leaves = [leaf_hash(parse_base64(item["leaf"])) for item in page["items"]]
    check_range(proof, leaves, head.size, head.root)
    for item, leaf in zip(page["items"], leaves, strict=True):
        path = [parse_base64(one) for one in item["hashes"]]
        check_inclusion(item["log_index"], head.size, leaf, path, head.root)
    assert [item["log_index"] for item in page["items"]] == list(range(proof.start, proof.end))
    return proof.start, proof.end


def test_every_range_comes_with_its_proof_and_every_size(ready: Installation) -> None:
    size = get(ready)["tree_size"]
    assert size > 3
    for first in range(size + 2):
        for limit in (1, 2, 1000):
            after = f"after={first - 1}&" if first else ""
            page = get(ready, f"{after}limit={limit}")
            start = min(first, size)
            assert check(ready, page) == (start, min(start + limit, size))
            assert page["completeness"]["provable"] is True
    said = get(ready, "after=0&limit=2")["completeness"]["detail"]
    assert said.startswith(f"entries 1 to 2 of a log of {size}: ")
    assert get(ready, f"after={size}")["completeness"]["detail"].startswith("no entry from")


def test_later_pages_are_proven_in_the_tree_of_the_first(ready: Installation) -> None:
    first = get(ready, "limit=2")
    size = first["tree_size"]
    ready.caller.erase_records("r1")
    assert get(ready)["tree_size"] > size
    page = get(ready, f"after={first['next']}&size={size}")
    assert check(ready, page) == (2, size)
    assert page["next"] is None
    problem(ready.caller.http.get("/v1/log/entries?size=99999"), 404, "not-found")
    problem(ready.caller.http.get("/v1/log/entries?size=0"), 422, "body-invalid")
    with Session(ready.services.engine) as session:
        signed = {row.size for row in session.exec(select(LogCheckpoint))}
    unsigned = set(range(1, size)) - signed
    for other in unsigned:
        assert get(ready, f"size={other}")["checkpoint"] is None
    for other in signed - {0}:
        assert check(ready, get(ready, f"size={other}")) == (0, other)


@pytest.mark.parametrize(
    "query", ["kind=model-event", "event=model.version", "ref=small", "since=2020-01-01"]
)
def test_a_filters_answer_says_that_it_is_not_provable(ready: Installation, query: str) -> None:
    page = get(ready, query)
    assert page["items"]
    assert page["completeness"]["provable"] is False
    assert page["completeness"]["range"] is None
    assert "without a filter" in page["completeness"]["detail"]


def test_the_client_reads_and_proves_the_services_log(ready: Installation) -> None:
    ready.caller.erase_records("r1")
    ready.drain()
    keys = ready.services.ledger.verifier
    with ready.client(token=None) as client:
        whole = client.log_entries(keys)
        assert whole.complete
        assert (whole.start, whole.end) == (0, whole.checkpoint.size)
        wanted = EntryFilter(event="request.certified")
        (asked,) = client.log_entries(keys, wanted=wanted).entries
        proven = client.log_entries(keys, wanted=wanted, prove=True)
        assert proven.entries == (asked,)
        assert proven.complete


def test_a_database_that_lacks_an_entry_answers_no_range(ready: Installation) -> None:
    tamper(ready.services.engine, 'DELETE FROM log_entries WHERE "index" = 2')
    problem(ready.caller.http.get("/v1/log/entries?limit=4"), 503, "log-damaged")
    assert check(ready, get(ready, "limit=2")) == (0, 2)


def test_an_entry_that_was_changed_in_the_database_is_noticed_by_its_reader(
    ready: Installation,
) -> None:
    """The tree's nodes are as they were signed, so the range no longer leads to them."""
    tamper(
        ready.services.engine,
        'UPDATE log_entries SET leaf = (SELECT leaf FROM log_entries WHERE "index" = 0) '
        'WHERE "index" = 2',
    )
    keys = ready.services.ledger.verifier
    with (
        ready.client(token=None) as client,
        pytest.raises(ProofError, match="another root"),
    ):
        client.log_entries(keys)


@pytest.mark.parametrize("limit", [1, 2, 1000])
@pytest.mark.parametrize(
    "query",
    [
        "since=2020-01-01",
        "until=2999-12-31",
        "kind=model-event&since=2020-01-01",
        "event=model.version&kind=model-event",
        "ref=small&event=model.version",
        "event=model.version&kind=erasure-event",
    ],
)
def test_a_call_with_several_filters_reads_a_bounded_part_of_the_log(
    ready: Installation, monkeypatch: pytest.MonkeyPatch, query: str, limit: int
) -> None:
    ready.caller.erase_records("r1")
    wanted = get(ready, f"{query}&limit=1000")
    assert wanted["next"] is None
    monkeypatch.setattr(public_log, "EXAMINED", 2)
    found: list[Any] = []
    page = {"next": "", "items": []}
    while page["next"] is not None:
        after = f"after={page['next']}&" if page["next"] else ""
        page = get(ready, f"{after}{query}&limit={limit}")
        assert len(page["items"]) <= min(limit, 2)
        found += page["items"]
    assert found == wanted["items"]


def test_several_filters_read_what_they_leave_out_once_and_without_its_leaves(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL sorts it: whole rows of 100,000 entries went through 40 MB of files, twice."""
    monkeypatch.setattr(public_log, "EXAMINED", 8191)
    ran: list[str] = []

    def note(_c: Any, _u: Any, statement: str, parameters: Any, *_: Any) -> None:
        given = parameters.values() if isinstance(parameters, dict) else parameters
        if 8191 in given:
            ran.append(statement)

    event.listen(ready.services.engine, "before_cursor_execute", note)
    assert get(ready, "ref=small&event=model.version")["items"]
    (statement,) = ran
    assert "leaf" not in statement


@pytest.mark.parametrize("query", ["since=9999-12-31", "until=1999-12-31"])
def test_days_outside_the_log_read_none_of_it(
    ready: Installation, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setattr(public_log, "EXAMINED", 1)
    page = get(ready, f"{query}&limit=1")
    assert (page["items"], page["next"]) == ([], None)


@pytest.mark.parametrize("query", ["since=2026-01-01", "until=2026-01-01"])
def test_an_empty_log_has_no_entry_of_any_day(installation: Installation, query: str) -> None:
    assert get(installation, query)["items"] == []
