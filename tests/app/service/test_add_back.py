"""An erased record is learned again only because somebody signed that it should be."""

from typing import Any

import numpy as np
import pytest
from httpx2 import Response
from sqlmodel import Session, col, select

from app.vault.master import open_tombstone_key, record_tag, tags_digest
from lethe.log.entries import parse_leaf
from models import LogEntry, Model, Tombstone
from tests.installation import Installation
from tests.small import MODEL, ROWS, Caller, pack, rows
from workers.lineage import versions

PATH = f"/v1/models/{MODEL}/contributions"
WISH = f"{PATH}?add_back=true"


@pytest.fixture
def client(ready: Installation) -> Caller:
    """Client c1, to whom r1 and r6 belong."""
    caller = Caller(ready.caller.http, ready.caller.token, keyid="client")
    caller.register_key(role="client", client="c1")
    return caller


def part(*numbers: int) -> bytes:
    """The rows of some records as they were registered, all under client c1."""
    whole = rows()
    arrays: dict[str, Any] = {name: values[list(numbers)] for name, values in whole.items()}
    return pack({**arrays, "clients": np.array(["c1"] * len(numbers))})


def send(client: Caller, path: str, body: bytes, **arguments: Any) -> Response:
    return client.signed("POST", path, body, content_type="application/x-npz", **arguments)


def erase(ready: Installation, *records: str) -> str:
    answer = ready.caller.erase_records(*records)
    assert answer.status_code == 202, answer.text
    ready.drain()
    return str(answer.json()["id"])


def learned(ready: Installation, answer: Response) -> dict[str, Any]:
    assert answer.status_code == 202, answer.text
    ready.drain()
    shown: dict[str, Any] = ready.caller.http.get(answer.headers["location"]).json()
    return shown


def digests(ready: Installation, event: str) -> list[dict[str, str]]:
    with Session(ready.services.engine) as session:
        entries = session.exec(
            select(LogEntry).where(LogEntry.event == event).order_by(col(LogEntry.index))
        )
        return [dict(parse_leaf(entry.leaf).digests) for entry in entries]


def tag(ready: Installation, record: str) -> bytes:
    with Session(ready.services.engine) as session:
        key = open_tombstone_key(ready.services.root_secret, session.exec(select(Model)).one())
    return record_tag(key, record)


def test_without_the_wish_an_erased_record_is_refused(
    ready: Installation, client: Caller
) -> None:
    erase(ready, "r1")
    for path in (PATH, f"{PATH}?add_back=false"):
        answer = send(client, path, part(1))
        assert (answer.status_code, answer.json()["type"]) == (
            409,
            "urn:lethe:problem:conflict",
        )


def test_erased_added_back_and_erased_again(ready: Installation, client: Caller) -> None:
    first = erase(ready, "r1", "r2")
    assert learned(ready, send(client, WISH, part(1)))["state"] == "learned"
    with Session(ready.services.engine) as session:
        assert [s.request_id for s in session.exec(select(Tombstone))] == [first]  # r2's
    second = erase(ready, "r1")
    certificates = set()
    for request in (first, second):
        shown = ready.caller.http.get(f"/v1/requests/{request}").json()
        assert shown["state"] == "certified"
        certificates.add(ready.caller.http.get(shown["certificate"]).content)
    assert len(certificates) == 2
    for record, request in (("r1", second), ("r2", first)):
        answer = ready.caller.erase_records(record).json()
        assert answer["type"] == "urn:lethe:problem:already-erased"
        assert answer["request"] == request
    ready.check()


def test_the_log_says_that_it_was_wished_and_done(ready: Installation, client: Caller) -> None:
    erase(ready, "r1")
    arrays = rows(seed=3, count=1, first=700)
    both = {
        name: np.concatenate([rows()[name][[1]], arrays[name]])
        for name in ("features", "labels")
    }
    body = pack({**both, "clients": np.array(["c1"] * 2), "records": np.array(["r1", "r700"])})
    learned(ready, send(client, WISH, body))
    learned(ready, send(client, PATH, pack({**rows(seed=4, count=1, first=801)})))
    tags = [tag(ready, "r1"), tag(ready, "r700")]
    received = digests(ready, "contribution.received")
    sent = [said.pop("upload") for said in received]
    assert all(len(one) == 64 for one in sent)
    assert received == [{"addBack": tags_digest(tags)}, {}]
    done = digests(ready, "contribution.learned")
    assert [said.pop("upload") for said in done][1:] == sent  # the first is the registration's
    assert done == [
        {},
        {"addBack": tags_digest([tag(ready, "r1")])},
        {},
    ]


def test_a_wish_for_records_never_erased_is_an_ordinary_contribution(
    ready: Installation, client: Caller
) -> None:
    body = pack({**rows(seed=3, count=1, first=701)})
    assert learned(ready, send(client, WISH, body))["state"] == "learned"
    assert digests(ready, "contribution.learned")[-1].keys() == {"upload"}
    assert send(client, WISH, part(1)).status_code == 409  # it is in the set


@pytest.mark.parametrize(("signed", "sent"), [(PATH, WISH), (WISH, PATH)])
def test_nobody_on_the_way_can_add_the_wish_or_take_it_out(
    ready: Installation, client: Caller, signed: str, sent: str
) -> None:
    erase(ready, "r1")
    answer = send(client, sent, part(1), target=f"{client.http.base_url}{signed}")
    assert (answer.status_code, answer.json()["type"]) == (
        401,
        "urn:lethe:problem:signature-invalid",
    )


def test_a_wish_that_is_none_is_refused(ready: Installation, client: Caller) -> None:
    assert send(client, f"{PATH}?add_back=maybe", part(1)).status_code == 422


def test_an_idempotency_key_keeps_its_wish(ready: Installation, client: Caller) -> None:
    erase(ready, "r1")
    once = {"idempotency-key": '"once"'}
    first = send(client, WISH, part(1), headers=once)
    assert send(client, WISH, part(1), headers=once).json()["id"] == first.json()["id"]
    other = send(client, PATH, part(1), headers=once)
    assert other.json()["type"] == "urn:lethe:problem:idempotency-key-reused"


def test_whoever_asks_while_a_record_is_on_its_way_back_is_told_to_wait(
    ready: Installation, client: Caller
) -> None:
    erase(ready, "r1")
    answer = send(client, WISH, part(1))
    early = ready.caller.erase_records("r1").json()
    assert early["type"] == "urn:lethe:problem:contribution-pending"
    assert learned(ready, answer)["state"] == "learned"
    request = erase(ready, "r1")
    assert ready.caller.http.get(f"/v1/requests/{request}").json()["state"] == "certified"


def test_an_ordinary_contribution_on_its_way_changes_no_answer(
    ready: Installation, client: Caller
) -> None:
    first = erase(ready, "r1")
    send(client, PATH, pack({**rows(seed=3, count=1, first=701)}))
    early = ready.caller.erase_records("r1").json()
    assert (early["type"], early["request"]) == ("urn:lethe:problem:already-erased", first)


def test_what_is_erased_before_its_turn_does_not_slip_back(
    ready: Installation, client: Caller
) -> None:
    """Two uploads of one record; between their turns the client is erased."""
    body = pack({**rows(seed=3, count=1, first=701)})
    first = send(client, PATH, body)
    whole = ready.caller.erase({"level": "client", "client": "c1"}).json()["id"]
    second = send(client, PATH, body)
    assert {first.status_code, second.status_code} == {202}
    assert learned(ready, second)["state"] == "failed"
    assert ready.caller.http.get(f"/v1/requests/{whole}").json()["state"] == "certified"
    items = ready.caller.operator("GET", f"/v1/models/{MODEL}/versions").json()["items"]
    assert [item["retained_count"] for item in items] == [ROWS, ROWS + 1, ROWS - ROWS // 5]
    ready.check()


def test_a_crash_while_learning_lifts_nothing_or_all(
    ready: Installation, client: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    erase(ready, "r1")
    answer = send(client, WISH, part(1))
    real = versions.append

    def crash(*arguments: Any) -> Any:
        raise OSError("the disk is full")

    monkeypatch.setattr(versions, "append", crash)
    ready.drain()
    with Session(ready.services.engine) as session:
        assert len(session.exec(select(Tombstone)).all()) == 1
    monkeypatch.setattr(versions, "append", real)
    ready.recover()
    assert learned(ready, answer)["state"] == "learned"
    with Session(ready.services.engine) as session:
        assert session.exec(select(Tombstone)).all() == []
