"""What the address of a request is told, by a real receiver that verifies it with the SDK."""

import base64
import json
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from sqlalchemy import text

from lethe.certificates.bundle import pae
from lethe.client import NoticeError, verify_callback
from tests.app.notices.callbacks.conftest import call_back, callbacks, erase, sent
from tests.app.notices.conftest import pass_time, rows
from tests.app.notices.receiver import Receiver
from tests.docs.markdown import blocks
from tests.installation import Installation
from tests.workers.jobs.desk.test_review import other


def key_of(installation: Installation) -> str:
    found: str = installation.caller.http.get("/v1/callbacks/key").json()["key"]
    return found


def told(installation: Installation, receiver: Receiver) -> list[dict[str, Any]]:
    """Return what was received, each verified as a receiver would."""
    key = key_of(installation)
    return [verify_callback(key, headers, body) for headers, body in receiver.seen]


def test_a_requester_is_told_that_its_request_is_certified(
    ready: Installation, receiver: Receiver
) -> None:
    made = erase(ready, receiver, "r5")
    [known] = callbacks(ready)
    assert (known["kind"], known["owner"], known["request"]) == (
        "request",
        "alice",
        made["ref"],
    )
    ready.drain()
    call_back(ready)
    [said] = told(ready, receiver)  # the states before it were overtaken
    view = ready.caller.http.get(f"/v1/requests/{made['id']}").json()
    certified = next(one for one in view["history"] if one["event"] == "request.certified")
    bundle = ready.caller.http.get(f"/v1/requests/{made['id']}/certificate").json()
    envelope = bundle["dsseEnvelope"]
    payload = base64.b64decode(envelope["payload"])
    assert said == {
        "type": "request.state",
        "timestamp": certified["at"],
        "data": {
            "ref": made["ref"],
            "state": "certified",
            "log_index": certified["log_index"],
            "certificate_sha256": sha256(pae(envelope["payloadType"], payload)).hexdigest(),
        },
    }
    [(headers, body)] = receiver.seen
    for secret in (made["id"], "alice", "r5"):
        assert secret.encode() not in body
    assert callbacks(ready) == []
    [row] = sent(ready, known["id"])  # the log of deliveries outlives the address
    assert (row["id"], row["answer"]) == (headers["webhook-id"], "204")
    call_back(ready)
    assert len(receiver.seen) == 1
    ready.check()


def test_the_program_of_the_page_verifies_a_callback(
    ready: Installation, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    (page,) = [one for one in blocks("docs/notices.md", "python") if "verify_callback" in one]
    program: dict[str, Any] = {}
    exec(page, program)
    ref = erase(ready, receiver, "r5")["ref"]
    ready.drain()
    call_back(ready)
    [(headers, body)] = receiver.seen
    assert program["handle"](key_of(ready), headers, body) == 204
    assert f"{ref} is now certified" in capsys.readouterr().out
    assert program["handle"](key_of(ready), headers, body + b" ") == 401


def test_each_state_that_lasts_is_told(installation: Installation, receiver: Receiver) -> None:
    installation.ready(decide="review")
    call_back(installation)
    made = erase(installation, receiver, "r5")
    path = f"/v1/cases/{made['ref']}"
    operator = other(installation).operator  # nobody approves what their key asked for
    states = []
    for act, body in (("pause", {"reason": "identity"}), ("resume", None), ("approve", None)):
        answer = operator("POST", f"{path}/{act}", json=body)
        assert answer.status_code == 200, answer.text
        call_back(installation)
        states.append(told(installation, receiver)[-1]["data"]["state"])
        assert callbacks(installation)[0]["delivered_state"] == states[-1]
    installation.drain()
    call_back(installation)
    assert [*states, told(installation, receiver)[-1]["data"]["state"]] == [
        "paused",
        "awaiting-review",
        "approved",
        "certified",
    ]
    assert "certificate_sha256" not in told(installation, receiver)[0]["data"]


def test_a_withdrawn_request_is_told_and_forgotten(
    installation: Installation, receiver: Receiver
) -> None:
    installation.ready(decide="review")
    call_back(installation)
    made = erase(installation, receiver, "r5")
    assert installation.caller.signed("DELETE", f"/v1/requests/{made['id']}").status_code == 200
    call_back(installation)
    assert [one["data"]["state"] for one in told(installation, receiver)] == ["withdrawn"]
    assert callbacks(installation) == []


def test_what_was_overtaken_while_a_receiver_was_away_is_not_sent(
    installation: Installation, receiver: Receiver
) -> None:
    installation.ready(decide="review")
    call_back(installation)
    made = erase(installation, receiver, "r5")
    receiver.answer(503)
    operator = installation.caller.operator
    body = {"reason": "identity"}
    operator("POST", f"/v1/cases/{made['ref']}/pause", json=body)
    call_back(installation)
    [known] = callbacks(installation)
    assert known["delivered_state"] is None
    operator("POST", f"/v1/cases/{made['ref']}/resume")
    pass_time(installation, seconds=6)
    call_back(installation)
    states = [one["data"]["state"] for one in told(installation, receiver)]
    assert states == ["paused", "awaiting-review"]  # the first was refused with 503
    ends = {
        one["about"]: (one["state"], one["answer"]) for one in sent(installation, known["id"])
    }
    assert sorted(ends.values()) == [("delivered", "204"), ("dropped", "overtaken")]


def test_a_changed_body_another_key_or_an_old_one_is_refused(
    ready: Installation, receiver: Receiver
) -> None:
    erase(ready, receiver, "r5")
    ready.drain()
    call_back(ready)
    [(headers, body)] = receiver.seen
    key = key_of(ready)
    with pytest.raises(NoticeError, match="did not sign"):
        verify_callback(key, headers, body.replace(b"certified", b"withdrawn"))
    with pytest.raises(NoticeError, match="did not sign"):
        verify_callback(f"whpk_{'A' * 43}=", headers, body)
    with pytest.raises(NoticeError, match="did not sign"):
        verify_callback(key, {**headers, "webhook-id": "msg_1"}, body)
    with pytest.raises(NoticeError, match="seconds from now"):
        verify_callback(key, headers, body, datetime.now(UTC) + timedelta(hours=1))


def test_a_state_that_the_log_does_not_open_is_not_told(
    ready: Installation, receiver: Receiver
) -> None:
    """Or whoever writes the tables had a certificate announced."""
    erase(ready, receiver, "r5")
    ready.drain()
    with ready.services.engine.begin() as connection:
        connection.execute(
            text(
                "UPDATE request_events SET event = 'request.withdrawn' "
                "WHERE event = 'request.certified'"
            )
        )
    call_back(ready)
    assert receiver.seen == []
    assert {row.answer for row in rows(ready)} == {"not as logged"}


def test_what_is_told_is_in_canonical_json(ready: Installation, receiver: Receiver) -> None:
    erase(ready, receiver, "r5")
    ready.drain()
    call_back(ready)
    [(headers, body)] = receiver.seen
    assert headers["content-type"] == "application/json"
    again = json.dumps(json.loads(body), sort_keys=True, separators=(",", ":"))
    assert body.decode() == again
