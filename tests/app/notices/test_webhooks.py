"""Webhooks from the log to a real receiver, verified by the reference implementation."""

import base64
import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from sqlalchemy import insert, text
from sqlmodel import Session, select
from standardwebhooks import Webhook as Standard
from standardwebhooks import WebhookVerificationError

from app.ledger import storage
from app.ledger.key_rows import KeyRows, believed
from app.notices import alarms, deliver, endpoints, outbox, post
from app.problems import ConflictError
from app.reconcile.fsck.run import fsck
from app.service import admission
from lethe.catalogue import NOTICES
from models import Delivery, ErasureRequest, NoticeCursor, RequestEvent, Webhook
from models.database.types import clock
from tests.app.notices.conftest import add, deliveries, pass_time, rows, turn
from tests.app.notices.receiver import Receiver, receiving
from tests.installation import Installation, make_token
from tests.small import Caller


def verified(secret: str, receiver: Receiver) -> list[dict[str, Any]]:
    """Return the bodies, each verified as a receiver would."""
    return [Standard(secret).verify(body, headers) for headers, body in receiver.seen]


def test_what_the_log_says_reaches_a_receiver_who_verifies_it(
    ready: Installation, receiver: Receiver
) -> None:
    made = add(ready, receiver)
    assert made["secret"].startswith("whsec_")
    answer = ready.caller.erase_records("r5")
    ready.drain()
    turn(ready)
    bodies = verified(made["secret"], receiver)
    assert {one["type"] for one in bodies} == {
        "request.received",
        "request.certified",
        "version.ready",
    }
    with Session(ready.services.engine) as session:
        request = session.exec(select(ErasureRequest)).one()
    for one in bodies:
        assert one["timestamp"].endswith("Z")
        assert one["data"]["model"] == "small"
    received = next(one for one in bodies if one["type"] == "request.received")
    assert received["data"] == {
        "ref": request.ref,
        "model": "small",
        "log_index": request.log_index,
        "regulation": "gdpr",
        "due_at": answer.json()["due_at"],
    }
    sent = b"".join(body for _, body in receiver.seen)
    for secret in (request.id, request.keyid, "r5"):
        assert str(secret).encode() not in sent
    turn(ready)
    assert len(receiver.seen) == 3
    found = deliveries(ready, made["id"])
    assert {one["state"] for one in found} == {"delivered"}
    assert {one["answer"] for one in found} == {"204"}
    assert {one["id"] for one in found} == {h["webhook-id"] for h, _ in receiver.seen}
    ready.check()


def test_a_changed_body_or_another_secret_does_not_verify(
    ready: Installation, receiver: Receiver
) -> None:
    made = add(ready, receiver)
    ready.caller.operator("POST", f"/v1/webhooks/{made['id']}/test")
    [(headers, body)] = receiver.seen
    assert Standard(made["secret"]).verify(body, headers)["type"] == "webhook.test"
    with pytest.raises(WebhookVerificationError):
        Standard(made["secret"]).verify(body.replace(b"test", b"text"), headers)
    with pytest.raises(WebhookVerificationError):
        Standard(f"whsec_{base64.b64encode(bytes(32)).decode()}").verify(body, headers)


def test_v1a_is_ed25519_over_id_timestamp_and_body(
    ready: Installation, receiver: Receiver
) -> None:
    made = add(ready, receiver, signature="v1a")
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(made["secret"][5:]))
    assert made["secret"].startswith("whpk_")
    shown = ready.caller.operator("GET", f"/v1/webhooks/{made['id']}").json()
    assert shown["secrets"] == [
        {"signature": "v1a", "public_key": made["secret"], "until": None}
    ]
    ready.caller.operator("POST", f"/v1/webhooks/{made['id']}/test")
    [(headers, body)] = receiver.seen
    version, signature = headers["webhook-signature"].split(",")
    assert version == "v1a"
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    key.verify(base64.b64decode(signature), signed)
    with pytest.raises(InvalidSignature):
        key.verify(base64.b64decode(signature), signed + b" ")


def test_after_a_rotation_both_secrets_verify_and_the_third_ends_the_first(
    ready: Installation, receiver: Receiver
) -> None:
    first = add(ready, receiver)
    path = f"/v1/webhooks/{first['id']}"
    second = ready.caller.operator("POST", f"{path}/rotate").json()
    assert second["secret"] != first["secret"]
    assert [one["until"] is None for one in second["secrets"]] == [True, False]
    ready.caller.operator("POST", f"{path}/test")
    for made in (first, second):
        verified(made["secret"], receiver)
    third = ready.caller.operator("POST", f"{path}/rotate").json()
    receiver.seen.clear()
    ready.caller.operator("POST", f"{path}/test")
    for made in (second, third):
        verified(made["secret"], receiver)
    with pytest.raises(WebhookVerificationError):
        verified(first["secret"], receiver)
    ready.check()


def test_only_what_was_subscribed_of_the_model_that_was_named(
    ready: Installation, receiver: Receiver
) -> None:
    add(ready, receiver, "request.received", model="other")
    mine = add(ready, receiver, "request.received", model="small")
    ready.caller.erase_records("r5")
    ready.drain()
    turn(ready)
    [row] = rows(ready)
    assert (row.receiver, row.event) == (mine["id"], "request.received")
    assert len(receiver.seen) == 1


def test_officers_decisions_and_withdrawals_are_told(
    installation: Installation, receiver: Receiver
) -> None:
    installation.ready(decide="review")
    made = add(installation, receiver)
    turn(installation)
    receiver.seen.clear()
    caller = installation.caller
    first = caller.erase_records("r1").json()
    second = caller.erase_records("r2").json()
    refused = {"reason": "legal-claims"}
    officer = replace(caller, token=make_token(installation.services, "officer"))
    for ref, what, body in (
        (first["ref"], "extend", {"reason": "complexity"}),
        (first["ref"], "approve", {}),
        (second["ref"], "refuse", refused),
    ):
        answer = officer.operator("POST", f"/v1/cases/{ref}/{what}", json=body or None)
        assert answer.status_code == 200, answer.text
    turn(installation)
    told = {(one["type"], one["data"].get("decision")): one for one in verified(made["secret"], receiver)}  # fmt: skip
    assert ("request.decided", "approved") in told
    assert ("request.decided", "refused") in told
    extended = told["request.extended", None]["data"]
    assert extended["due_at"] > first["due_at"]
    assert "legal" not in json.dumps([*map(str, told)])


def test_an_overdue_request_is_told_once_and_by_the_logged_deadline(
    ready: Installation, receiver: Receiver
) -> None:
    made = add(ready, receiver, "request.overdue")
    ready.caller.erase_records("r5")
    with Session(ready.services.engine) as session:
        request = session.exec(select(ErasureRequest)).one()
        request.due_at = request.due_at.replace(
            year=2020
        )  # the table says so; the log does not
        session.add(request)
        session.commit()
    ready.dispatcher.nudges.clear()
    ready.dispatcher.sweep(ready.services)
    turn(ready)
    assert receiver.seen == []
    [one] = deliveries(ready, made["id"])
    assert (one["state"], one["answer"]) == ("dropped", "not overdue")


def test_a_request_whose_logged_deadline_has_passed_is_overdue(
    ready: Installation, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = add(ready, receiver, "request.overdue", model="small")
    past = datetime(2026, 1, 31, 12, tzinfo=UTC)
    monkeypatch.setattr(admission, "due_at", lambda *_: past)
    ready.caller.erase_records("r5")
    ready.dispatcher.nudges.clear()
    for _ in range(2):
        ready.dispatcher.sweep(ready.services)
        turn(ready)
    [told] = verified(made["secret"], receiver)
    assert told["type"] == "request.overdue"
    assert told["timestamp"] == told["data"]["due_at"] == "2026-01-31T12:00:00Z"


# --- what somebody who writes the database can have sent: nothing ---------------------------


def test_an_entry_that_somebody_else_wrote_is_an_alarm_and_no_notice(
    ready: Installation, receiver: Receiver
) -> None:
    made = add(ready, receiver)
    with ready.services.engine.begin() as connection:
        [size] = connection.execute(text("SELECT count(*) FROM log_entries")).one()
        connection.execute(
            text(
                'INSERT INTO log_entries ("index", leaf, kind, event, ref, day, mac) SELECT '
                ":size, leaf, kind, event, ref, day, mac FROM log_entries WHERE event = "
                "'model.version' LIMIT 1"
            ),
            {"size": size},
        )
    for _ in range(2):
        turn(ready)
    told = verified(made["secret"], receiver)
    assert sorted((one["type"], one["data"]["alarm"]) for one in told) == [
        ("key.alarm", f"log-entry-{size}"),
        ("key.alarm", "log-not-signed"),
    ]


def test_another_target_in_the_table_gets_nothing_and_is_an_alarm(
    ready: Installation, receiver: Receiver
) -> None:
    add(ready, receiver, "key.alarm")
    with receiving() as thief:
        moved = add(ready, receiver, "request.received")
        with Session(ready.services.engine) as session:
            row = session.exec(select(Webhook).where(Webhook.id == moved["id"])).one()
            row.url = thief.url
            session.add(row)
            session.commit()
        ready.caller.erase_records("r5")
        turn(ready)
        assert thief.seen == []
    [(_, body)] = receiver.seen
    assert json.loads(body)["data"] == {"alarm": "webhooks-row"}
    answer = ready.caller.operator("GET", f"/v1/webhooks/{moved['id']}")
    assert answer.status_code == 404
    found = {one.check for one in fsck(ready.services.ledger).findings}
    assert found == {"webhook"}


@pytest.mark.parametrize("change", ["rotate", "disable", "remove"])
def test_an_older_row_cannot_be_put_back(
    ready: Installation, receiver: Receiver, change: str
) -> None:
    made = add(ready, receiver)
    with Session(ready.services.engine) as session:
        old = session.exec(select(Webhook)).one().model_dump()
    if change == "remove":
        answer = ready.caller.operator("DELETE", f"/v1/webhooks/{made['id']}")
        assert answer.status_code == 200
    else:
        ready.caller.operator("POST", f"/v1/webhooks/{made['id']}/{change}")
    with Session(ready.services.engine) as session:
        for row in session.exec(select(Webhook)).all():
            session.delete(row)
        session.flush()
        session.add(Webhook(**old))
        session.commit()
    ready.caller.erase_records("r5")
    turn(ready)
    assert receiver.seen == []


@pytest.mark.parametrize("reader", ["list", "show", "sender"])
def test_a_change_that_was_killed_before_its_list_cannot_be_undone_once_it_was_seen(
    ready: Installation, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    made = add(ready, receiver)
    path = f"/v1/webhooks/{made['id']}"
    with Session(ready.services.engine) as session:
        old = session.exec(select(Webhook)).one().model_dump()

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(KeyRows, "ban", killed)
        with pytest.raises(KeyboardInterrupt):
            endpoints.disable(ready.services, made["id"])
    if reader == "list":
        [seen] = ready.caller.operator("GET", "/v1/webhooks").json()["items"]
        assert seen["disabled"]
    elif reader == "show":
        assert ready.caller.operator("GET", path).json()["disabled"]
    else:
        ready.caller.erase_records("r4")
        turn(ready)
    with Session(ready.services.engine) as session:
        session.delete(session.exec(select(Webhook)).one())
        session.flush()
        session.add(Webhook(**old))
        session.commit()
    ready.caller.erase_records("r5")
    turn(ready)
    assert receiver.seen == []


def test_rows_of_deliveries_that_somebody_else_wrote_are_not_sent(
    ready: Installation, receiver: Receiver
) -> None:
    made = add(ready, receiver, "request.certified")
    ready.caller.erase_records("r5")
    turn(ready)
    with Session(ready.services.engine) as session:
        index = str(session.exec(select(ErasureRequest)).one().log_index)
        session.add(
            Delivery(
                id="msg_" + "0" * 32,
                receiver=made["id"],
                event="request.certified",
                about=index,
                created_at=clock(session),
                state="waiting",
                next_at=clock(session),
            )
        )
        session.commit()
    turn(ready)
    assert receiver.seen == []
    [one] = deliveries(ready, made["id"])
    assert (one["state"], one["answer"]) == ("dropped", "not written here")


def test_a_changed_opening_is_not_told(ready: Installation, receiver: Receiver) -> None:
    made = add(ready, receiver, "request.received")
    ready.caller.erase_records("r5")
    with Session(ready.services.engine) as session:
        row = session.exec(select(RequestEvent)).one()
        row.payload = {**row.payload, "due_at": "2020-01-01T00:00:00Z"}
        session.add(row)
        session.commit()
    turn(ready)
    assert receiver.seen == []
    [one] = deliveries(ready, made["id"])
    assert (one["state"], one["answer"]) == ("dropped", "not as logged")


# --- retries --------------------------------------------------------------------------------


def test_failures_follow_the_schedule_until_the_tenth_and_can_be_replayed(
    ready: Installation, receiver: Receiver
) -> None:
    made = add(ready, receiver, "request.received")
    ready.caller.erase_records("r5")
    waits = []
    for number in range(10):
        receiver.answer(302 if number == 0 else 500, location=receiver.url)
        turn(ready)
        [row] = rows(ready)
        with Session(ready.services.engine) as session:
            waits.append(round((row.next_at - clock(session)).total_seconds() + 1))
        turn(ready)  # it waits
        pass_time(ready, days=1)
    assert len(receiver.seen) == 10
    assert len({headers["webhook-id"] for headers, _ in receiver.seen}) == 1
    for found, wanted in zip(waits, deliver.SCHEDULE, strict=False):
        assert wanted - 30 <= found <= wanted + 1
    [one] = deliveries(ready, made["id"])
    assert (one["state"], one["attempts"], one["answer"]) == ("failed", 10, "500")
    answer = ready.caller.operator("POST", f"/v1/webhooks/{made['id']}/replay", json={})
    assert answer.json() == {"waiting": 1}
    turn(ready)
    [one] = deliveries(ready, made["id"])
    assert (one["state"], one["id"]) == ("delivered", receiver.seen[0][0]["webhook-id"])
    body = {"delivery": one["id"]}
    again = ready.caller.operator("POST", f"/v1/webhooks/{made['id']}/replay", json=body)
    assert again.json() == {"waiting": 1}
    refused = ready.caller.operator("POST", f"/v1/webhooks/{made['id']}/replay", json=body)
    assert refused.status_code == 409


def test_a_receiver_may_ask_for_a_longer_wait(ready: Installation, receiver: Receiver) -> None:
    add(ready, receiver, "request.received")
    ready.caller.erase_records("r5")
    receiver.answer(429, retry_after="3600")
    turn(ready)
    [row] = rows(ready)
    with Session(ready.services.engine) as session:
        assert 3500 < (row.next_at - clock(session)).total_seconds() <= 3600


def test_410_disables_the_endpoint_until_it_is_enabled(
    ready: Installation, receiver: Receiver
) -> None:
    made = add(ready, receiver, "request.received")
    path = f"/v1/webhooks/{made['id']}"
    ready.caller.erase_records("r5")
    receiver.answer(410)
    turn(ready)
    assert ready.caller.operator("GET", path).json()["disabled"] == "410 Gone"
    for call in ("replay", "test"):
        body: Any = {} if call == "replay" else None
        assert ready.caller.operator("POST", f"{path}/{call}", json=body).status_code == 409
    ready.caller.erase_records("r6")
    turn(ready)
    assert len(receiver.seen) == 1
    assert ready.caller.operator("POST", f"{path}/enable").json()["disabled"] is None
    ready.caller.erase_records("r7")
    turn(ready)
    assert len(receiver.seen) == 2


def test_what_waits_for_a_disabled_endpoint_fails(
    ready: Installation, receiver: Receiver
) -> None:
    made = add(ready, receiver, "request.received")
    ready.caller.erase_records("r5")
    receiver.answer(500)
    turn(ready)
    ready.caller.operator("POST", f"/v1/webhooks/{made['id']}/disable")
    pass_time(ready, days=1)
    turn(ready)
    [one] = deliveries(ready, made["id"])
    assert (one["state"], one["answer"]) == ("failed", "webhook disabled")


def test_nobody_listening_is_tried_again(ready: Installation) -> None:
    with receiving() as gone:
        made = add(ready, gone, "request.received")
    ready.caller.erase_records("r5")
    turn(ready)
    [one] = deliveries(ready, made["id"])
    assert (one["state"], one["attempts"], one["answer"]) == ("waiting", 1, "connection")


# --- several senders, and killed ones -------------------------------------------------------


def test_a_sender_killed_after_sending_sends_again_under_the_same_id(
    ready: Installation, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(ready, receiver, "request.received")
    ready.caller.erase_records("r5")

    send = post.post

    def killed(*arguments: Any) -> None:
        send(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(post, "post", killed)
        with pytest.raises(KeyboardInterrupt):
            turn(ready)
    turn(ready)  # the lease holds
    assert len(receiver.seen) == 1
    pass_time(ready, seconds=deliver.LEASE_S + 1)
    turn(ready)
    [first, second] = [headers["webhook-id"] for headers, _ in receiver.seen]
    assert first == second
    assert [row.state for row in rows(ready)] == ["delivered"]


def test_a_notice_that_kills_each_sender_ends_after_ten(
    ready: Installation, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead sender records nothing: each attempt counts from its beginning."""
    made = add(ready, receiver, "request.received")
    ready.caller.erase_records("r5")
    send = post.post

    def killed(*arguments: Any) -> None:
        send(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(post, "post", killed)
    for _ in range(len(deliver.SCHEDULE) + 3):
        with suppress(KeyboardInterrupt):
            turn(ready)
        pass_time(ready, days=1)
    assert len(receiver.seen) == len(deliver.SCHEDULE) + 1
    [one] = deliveries(ready, made["id"])
    assert (one["state"], one["attempts"], one["answer"]) == ("failed", 10, "sender died")


def test_a_sender_killed_before_the_commit_leaves_all_to_the_next(
    ready: Installation, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(ready, receiver, "request.received")
    ready.caller.erase_records("r5")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(outbox, "put", killed)
        with pytest.raises(KeyboardInterrupt):
            turn(ready)
    assert rows(ready) == []
    turn(ready)
    assert len(receiver.seen) == 1


def test_of_two_senders_one_writes_and_one_sends(
    ready: Installation, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(ready, receiver, "request.received")
    ready.caller.erase_records("r5")
    original = storage.read_entries
    inner: list[bool] = []

    def meanwhile(*args: Any) -> Any:
        if not inner:
            inner.append(True)
            outbox.read_on(ready.services)  # another sender reads and commits first
        return original(*args)

    monkeypatch.setattr(storage, "read_entries", meanwhile)
    outbox.read_on(ready.services)
    monkeypatch.undo()
    assert len(rows(ready)) == 1
    other = []
    send = post.post

    def sending(*arguments: Any) -> Any:
        for row in rows(ready):  # another sender finds the lease taken
            other.append(deliver.attempt(ready.services, row.id))
        return send(*arguments)

    monkeypatch.setattr(post, "post", sending)
    deliver.run(ready.services)
    assert other == [None]
    assert len(receiver.seen) == 1


def test_one_page_after_the_other(
    ready: Installation, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "PAGE", 2)
    add(ready, receiver, "request.received")
    for number in range(4):
        ready.caller.erase_records(f"r{number}")
    turn(ready)
    assert len(receiver.seen) == 4
    with Session(ready.services.engine) as session:
        assert session.get_one(NoticeCursor, 1).next_index == ready.services.ledger.size(
            session
        )


def test_deliveries_are_forgotten_and_shown_by_pages(
    ready: Installation, receiver: Receiver
) -> None:
    made = add(ready, receiver, "request.received")
    for number in range(3):
        ready.caller.erase_records(f"r{number}")
    turn(ready)
    path, seen = f"/v1/webhooks/{made['id']}/deliveries?limit=2", []
    page = ready.caller.operator("GET", path).json()
    seen += page["items"]
    rest = ready.caller.operator("GET", f"{path}&after={page['next']}").json()
    assert rest["next"] is None
    assert len({one["id"] for one in [*seen, *rest["items"]]}) == 3
    with Session(ready.services.engine) as session:
        now = clock(session)
    deliver.forget(ready.services, timedelta(days=30), now + timedelta(days=29))
    assert len(rows(ready)) == 3
    deliver.forget(ready.services, timedelta(days=30), now + timedelta(days=31))
    assert rows(ready) == []


def test_all_that_is_old_is_forgotten_however_much_ended(
    ready: Installation, receiver: Receiver
) -> None:
    add(ready, receiver, "request.received")
    ready.caller.erase_records("r0")
    turn(ready)
    (known,) = rows(ready)
    with Session(ready.services.engine) as session:
        # Within an hour, which is how often `forget` is called.
        made = [{**known.model_dump(), "id": f"nt_{number}"} for number in range(1200)]
        session.connection().execute(insert(Delivery), made)
        session.commit()
        now = clock(session)
    deliver.forget(ready.services, timedelta(days=30), now + timedelta(days=31))
    assert rows(ready) == []


def test_of_two_changes_at_once_one_is_refused(
    ready: Installation, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = add(ready, receiver)
    original = endpoints.find

    def also(session: Session, webhook: str) -> Webhook:
        row = original(session, webhook)
        other = Webhook(**{**row.model_dump(), "row": f"{webhook}.1", "generation": 1})
        session.add(other)  # what another process has committed meanwhile
        session.flush()
        return row

    monkeypatch.setattr(endpoints, "find", also)
    answer = ready.caller.operator("POST", f"/v1/webhooks/{made['id']}/rotate")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:lethe:problem:conflict")


def test_alarms_name_the_table_of_a_planted_key(
    ready: Installation, receiver: Receiver
) -> None:
    made = add(ready, receiver, "key.alarm")
    alarms.look(ready.services)
    assert rows(ready) == []
    with ready.services.engine.begin() as connection:
        connection.execute(text("UPDATE requester_keys SET role = 'client'"))
        connection.execute(text("UPDATE bearer_tokens SET scope = 'auditor'"))
    alarms.look(ready.services)
    assert {row.about.partition("@")[0] for row in rows(ready)} == {
        "requester-keys-row",
        "bearer-tokens-row",
    }
    deliver.run(ready.services)
    assert {one["data"]["alarm"] for one in verified(made["secret"], receiver)} == {
        "requester-keys-row",
        "bearer-tokens-row",
    }


# --- the API --------------------------------------------------------------------------------

REFUSED = [
    ("unknown event", {"events": ["request.eaten"]}, 422, "body-invalid"),
    ("no event", {"events": []}, 422, "body-invalid"),
    ("own network", {"url": "https://10.0.0.1/hook"}, 422, "webhook-target"),
    ("this machine by IPv6", {"url": "https://[::1]/hook"}, 422, "webhook-target"),
    ("unencrypted", {"url": "http://192.0.2.1/hook"}, 422, "webhook-target"),
    ("credentials", {"url": "https://u:geheim@localhost/"}, 422, "webhook-target"),
    ("another scheme", {"url": "file:///etc/passwd"}, 422, "webhook-target"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "status", "slug"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])  # fmt: skip
def test_what_cannot_be_an_endpoint_is_refused_by_name(
    ready: Installation, changes: dict[str, Any], status: int, slug: str
) -> None:
    body = {"url": "https://localhost/hook", "events": ["key.alarm"], **changes}
    answer = ready.caller.operator("POST", "/v1/webhooks", json=body)
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:lethe:problem:{slug}")
    for given in ("geheim", "passwd", "eaten", "192.0.2.1"):
        assert given not in answer.text
    assert ready.caller.operator("GET", "/v1/webhooks").json()["items"] == []


def test_only_operators_see_endpoints_and_nobody_sees_a_secret_twice(
    ready: Installation, receiver: Receiver
) -> None:
    made = add(ready, receiver)
    listed = ready.caller.operator("GET", "/v1/webhooks")
    assert made["secret"] not in listed.text
    [item] = listed.json()["items"]
    assert {**item, "secret": made["secret"]} == made
    assert item["events"] == sorted(NOTICES)
    auditor = Caller(ready.caller.http, make_token(ready.services, "auditor"))
    assert auditor.operator("GET", "/v1/webhooks").status_code == 403
    with ready.services.engine.connect() as connection:
        [stored] = connection.execute(text("SELECT url, secrets FROM webhooks")).all()
    assert b"/hook" not in bytes(stored[0])
    assert made["secret"][6:].encode() not in bytes(stored[1])


@pytest.mark.parametrize("call", ["", "/deliveries", "/test", "/rotate", "/disable", "/enable"])
def test_an_endpoint_that_is_not_there(ready: Installation, call: str) -> None:
    method = "GET" if call in ("", "/deliveries") else "POST"
    answer = ready.caller.operator(method, f"/v1/webhooks/wh_none{call}")
    assert answer.status_code == 404


@pytest.mark.parametrize("reader", ["current", "find"])
def test_a_webhook_that_is_changed_while_another_process_reads_it_misses_nothing(
    reader: str, ready: Installation, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That process's snapshot has the row from before, which is listed as replaced by then."""
    hook = add(ready, receiver, "request.received")["id"]
    honest = getattr(endpoints, reader)
    changed: list[Any] = []

    def changed_meanwhile(session: Session, *names: str) -> Any:
        if not changed:
            session.exec(select(Webhook.row)).all()  # its snapshot begins
            changed.append(1)
            changed.append(endpoints.rotate(ready.services, hook))
        return honest(session, *names)

    ready.caller.erase_records("r1")
    monkeypatch.setattr(endpoints, reader, changed_meanwhile)
    turn(ready)
    assert len(changed) == 2
    assert [one["state"] for one in deliveries(ready, hook)] == ["delivered"]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("event", ["request.overdue", "key.alarm"])
def test_a_webhook_that_is_changed_between_two_reads_of_a_writer_misses_nothing(
    event: str, ready: Installation, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each statement of a writer on PostgreSQL sees what was committed before it."""
    hook = add(ready, receiver, event)["id"]
    past = datetime(2026, 1, 31, 12, tzinfo=UTC)
    monkeypatch.setattr(admission, "due_at", lambda *_: past)
    ready.caller.erase_records("r5")
    ready.dispatcher.nudges.clear()
    honest, changed = believed, list[str]()

    def changed_meanwhile(session: Session, table: Any, name: str) -> Any:
        if not changed:
            changed.append(name)  # the only row, which was listed before it is read
            endpoints.rotate(ready.services, hook)
        return honest(session, table, name)

    with ready.services.engine.begin() as connection:
        connection.execute(text("UPDATE requester_keys SET role = 'client'"))
    monkeypatch.setattr(endpoints, "believed", changed_meanwhile)
    if event == "key.alarm":
        alarms.look(ready.services)
    else:
        ready.dispatcher.sweep(ready.services)
    assert changed == [f"{hook}.0"]
    assert [(row.receiver, row.event) for row in rows(ready)] == [(hook, event)]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("removed", ["last", "first"])
def test_a_webhook_that_was_removed_is_gone_whoever_changed_it_meanwhile(
    removed: str, ready: Installation, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writers on PostgreSQL read the same row, and neither sees what the other does to it."""
    hook = add(ready, receiver)["id"]
    own, others = endpoints.remove, endpoints.rotate
    if removed == "first":
        own, others = endpoints.rotate, endpoints.remove
    honest, read = endpoints.find, list[str]()

    def changed_meanwhile(session: Session, webhook: str) -> Webhook:
        row = honest(session, webhook)
        if not read:
            read.append(row.row)
            others(ready.services, webhook)
        return row

    monkeypatch.setattr(endpoints, "find", changed_meanwhile)
    with pytest.raises(ConflictError, match="meanwhile"):
        own(ready.services, hook)
    if removed == "last":
        endpoints.remove(ready.services, hook)  # the operator tries again
    assert ready.caller.operator("GET", "/v1/webhooks").json()["items"] == []
