"""Calls about masked rounds that are refused, by name, and store nothing."""

import json
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
import rfc8785
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from app.rounds import member, messages
from app.rounds.operator import POLLS
from lethe.signing.keys import generate_key
from tests.installation import Installation
from tests.small import MODEL
from tests.workers.secure_sum.client.federation import Masked
from workers.secure_sum import signing
from workers.secure_sum.client import join
from workers.secure_sum.client.join import Joining
from workers.secure_sum.messages import seen_digest
from workers.secure_sum.spelling import spell, to_text

FOUR = ("c0", "c1", "c2", "c3")
new_key = X25519PrivateKey.generate


@pytest.fixture
def masked(installation: Installation, enrolled: Masked) -> Masked:
    return enrolled.at(installation)


@pytest.fixture
def learned(installation: Installation, taught: Masked) -> Masked:
    """A model that learned a round of `FOUR`."""
    return taught.at(installation)


def slug(answer: Any) -> str:
    return str(answer.json()["type"]).rpartition(":")[2]


def opened(masked: Masked) -> tuple[str, list[Joining]]:
    answer = masked.open(*FOUR)
    assert answer.status_code == 201, answer.text
    round_id = answer.json()["id"]
    return round_id, [masked.joining(round_id, client) for client in FOUR]


def test_both_sides_sign_in_the_same_domain() -> None:
    assert messages.DOMAIN == signing.DOMAIN


def test_a_round_is_shown_to_operators_and_to_its_members(masked: Masked) -> None:
    round_id, joining = opened(masked)
    masked.take(joining, 1)
    shown = masked.view(round_id)
    assert (shown["state"], shown["members"], shown["threshold"]) == ("share", 4, 3)
    assert shown["sent"] == {"advertise": 4, "share": 0, "masked": 0, "confirm": 0, "reveal": 0}
    assert shown["waits_for"] == masked.keyids(*FOUR)
    listed = masked.installation.caller.operator("GET", "/v1/rounds").json()
    assert [item["id"] for item in listed["items"]] == [round_id]
    (asked,) = masked.clients["c0"].signed("GET", "/v1/rounds/asked").json()["items"]
    assert asked["id"] == round_id
    assert masked.clients["c4"].signed("GET", "/v1/rounds/asked").json()["items"] == []
    other = masked.clients["c4"].signed("GET", f"/v1/rounds/{round_id}/work")
    assert (other.status_code, slug(other)) == (404, "not-found")
    assert masked.installation.caller.http.get(f"/v1/rounds/{round_id}").status_code == 401


OPENINGS: dict[str, tuple[dict[str, Any], int, str]] = {
    "unknown-model": ({"model": "nothing"}, 404, "model-unknown"),
    "unknown-key": ({"members": ["key-c0", "nobody"]}, 422, "round-member-refused"),
    "a-requesters-key": ({"members": ["key-c0", "alice"]}, 422, "round-member-refused"),
    "twice": ({"members": ["key-c0", "key-c0"]}, 422, "round-member-refused"),
    "one-member": ({"members": ["key-c0"]}, 422, "body-invalid"),
    "threshold-low": ({"threshold": 2}, 422, "round-member-refused"),
    "threshold-high": ({"threshold": 5}, 422, "round-member-refused"),
    "no-time": ({"step_seconds": 0}, 422, "body-invalid"),
    "misspelt": ({"treshold": 3}, 422, "body-invalid"),
}


def test_rounds_that_are_not_opened(masked: Masked) -> None:
    caller = masked.installation.caller
    for case, (change, status, name) in OPENINGS.items():
        body = {"model": MODEL, "members": masked.keyids(*FOUR), **change}
        answer = caller.operator("POST", "/v1/rounds", json=body)
        assert (answer.status_code, slug(answer)) == (status, name), (case, answer.text)
        assert caller.operator("GET", "/v1/rounds").json()["items"] == [], case


def test_a_step_is_as_long_as_members_need_to_see_it(masked: Masked) -> None:
    """Of twelve, each polls every 1.2 s: a step of 2 s would be over for some."""
    assert POLLS == join.POLLS
    caller = masked.installation.caller
    keyids = [f"ward-{number}" for number in range(12)]
    for keyid in keyids:
        other = replace(caller, keyid=keyid, key=generate_key("ed25519"))
        assert other.register_key(role="client", client=keyid).status_code == 201
    body = {"model": MODEL, "members": keyids, "step_seconds": 2}
    answer = caller.operator("POST", "/v1/rounds", json=body)
    assert (answer.status_code, slug(answer)) == (422, "round-member-refused")
    assert "at least 3 seconds" in answer.json()["detail"]
    answer = caller.operator("POST", "/v1/rounds", json={**body, "step_seconds": 3})
    assert answer.status_code == 201


def test_keys_that_are_not_bound_to_one_client_each(masked: Masked) -> None:
    caller = masked.installation.caller
    for keyid, fields in {
        "free": {"role": "client"},
        "narrow": {"role": "client", "client": "c9", "subject": "s"},
        "same": {"role": "client", "client": "c0"},
    }.items():
        other = replace(caller, keyid=keyid, key=generate_key("ed25519"))
        assert other.register_key(**fields).status_code == 201
        body = {"model": MODEL, "members": ["key-c0", keyid]}
        answer = caller.operator("POST", "/v1/rounds", json=body)
        assert (answer.status_code, slug(answer)) == (422, "round-member-refused")


def test_one_round_of_a_model_at_a_time(masked: Masked) -> None:
    opened(masked)
    again = masked.open(*FOUR)
    assert (again.status_code, slug(again)) == (409, "round-open")


def test_a_model_that_is_not_masked(installation: Installation) -> None:
    plain = Masked(installation, data="statistics")
    answer = plain.open(*FOUR)
    assert (answer.status_code, slug(answer)) == (409, "model-not-masked")


def test_two_members_are_warned_about(masked: Masked) -> None:
    round_id = masked.round("c0", "c1")
    warnings = masked.view(round_id)["warnings"]
    assert warnings[0].startswith("fewer than 3 members")
    assert warnings[1].startswith("2 of the members contribute")


def test_a_single_record_is_warned_about(learned: Masked) -> None:
    learned.installation.caller.erase_records(learned.owned("c0")[0])
    learned.installation.drain()
    round_id = learned.round(*FOUR)
    warnings = learned.view(round_id)["warnings"]
    assert any("a single record is moved" in warning for warning in warnings)
    assert any(warning.startswith("1 of the members contribute") for warning in warnings)


def _put(masked: Masked, round_id: str, step: str, data: bytes, client: str = "c0") -> Any:
    path = f"/v1/rounds/{round_id}/messages/{step}"
    return masked.clients[client].signed("PUT", path, data)


def test_the_same_message_again_is_answered_again(masked: Masked) -> None:
    round_id, joining = opened(masked)
    masked.take(joining[:1], 1)
    member = joining[0].member
    assert member is not None
    again = _put(masked, round_id, "advertise", member.advertise())
    assert again.status_code == 200
    assert masked.view(round_id)["sent"]["advertise"] == 1


def test_another_message_for_a_step_is_not_taken(masked: Masked) -> None:
    round_id, joining = opened(masked)
    masked.take(joining[:1], 1)
    twin = masked.joining(round_id, "c0")
    with pytest.raises(Exception, match="it is not replaced"):
        twin.step()


def test_keys_with_which_no_peer_could_take_part_are_not_taken(masked: Masked) -> None:
    """Otherwise all peers leave the round, and nobody is told because of whom."""
    round_id, joining = opened(masked)
    masked.take(joining[1:], 1)
    liar = joining[0]
    liar.plan = joining[1].plan
    keys = [to_text(key.public_key().public_bytes_raw()) for key in (new_key(), new_key())]
    small = to_text(bytes(31) + b"\x80"), to_text(b"\x01" + bytes(31))  # of small order
    for cipher, mask in ((small[0], keys[1]), (keys[0], small[1]), (keys[0], keys[0])):
        body = {"cipher": cipher, "commitment": to_text(bytes(32)), "mask": mask}
        answer = _put(masked, round_id, "advertise", _signed(liar, "advertise", body))
        assert (answer.status_code, slug(answer)) == (422, "message-malformed"), answer.text
    assert masked.view(round_id)["sent"]["advertise"] == 3
    body = {"cipher": keys[0], "commitment": to_text(bytes(32)), "mask": keys[1]}
    message = _signed(liar, "advertise", body)
    assert _put(masked, round_id, "advertise", message).status_code == 200


def test_steps_are_taken_in_their_order(masked: Masked) -> None:
    round_id, joining = opened(masked)
    joining[0].step()
    member = joining[0].member
    assert member is not None
    answer = _put(masked, round_id, "share", _signed(joining[0], "share", {"shares": {}}))
    assert (answer.status_code, slug(answer)) == (409, "round-step")


def _signed(joining: Joining, step: str, body: dict[str, Any], **changes: Any) -> bytes:
    """A message that this member signs, whatever it says."""
    assert joining.plan is not None
    document = {
        "body": body,
        "from": joining.keyid,
        "plan": joining.plan.digest.hex(),
        "step": step,
        **changes,
    }
    return spell({**document, "signature": to_text(signing.sign(joining.key, spell(document)))})


def _masked_body(joining: Joining, **changes: Any) -> dict[str, Any]:
    assert joining.plan is not None
    assert joining.member is not None
    body = {
        "adds": [],
        "peers": list(joining.plan.members),
        "people": {},
        "releases": [],
        "vector": to_text(bytes(8 * joining.plan.length)),
        **changes,
    }
    stated = {
        "added": len(body["adds"]),
        "content": to_text(bytes(32)),
        "input": to_text(sha256(b64decode(body["vector"] + "==")).digest()),
        "released": len(body["releases"]),
        "seen": to_text(seen_digest(joining.member.peers, joining.plan.members)),
    }
    statement = _signed(joining, "statement", stated).decode()
    return {**body, "statement": statement, **changes}


Build = Callable[[Joining], bytes]
ONE = {"record": "n", "subject": "s"}
MASKED: dict[str, tuple[Build, int, str]] = {
    "not-json": (lambda j: b"{", 422, "message-malformed"),
    "spaces": (lambda j: _signed(j, "masked", _masked_body(j)) + b" ", 422, "message-malformed"),
    "another-step": (lambda j: _signed(j, "reveal", {"mask": {}, "self": {}}), 422, "message-of-another-round"),
    "another-plan": (lambda j: _signed(j, "masked", _masked_body(j), plan="0" * 64), 422, "message-of-another-round"),
    "another-member": (lambda j: _signed(j, "masked", _masked_body(j), **{"from": "key-c1"}), 422, "message-of-another-round"),
    "unsigned": (lambda j: _forged(j), 422, "message-forged"),
    "short-vector": (lambda j: _signed(j, "masked", _masked_body(j, vector=to_text(bytes(8)))), 422, "length-wrong"),
    "vector-no-base64": (lambda j: _signed(j, "masked", _masked_body(j, vector="#")), 422, "message-malformed"),
    "extra-field": (lambda j: _signed(j, "masked", _masked_body(j, also=1)), 422, "message-malformed"),
    "id-with-newline": (lambda j: _signed(j, "masked", _masked_body(j, releases=["a\nb"])), 422, "message-malformed"),
    "fewer-peers": (lambda j: _signed(j, "masked", _masked_body(j, peers=["key-c0", "key-c1", "key-c2"])), 422, "mask-mismatch"),
    "no-statement": (lambda j: _signed(j, "masked", _masked_body(j, statement="{}")), 422, "message-malformed"),
    "anothers-statement": (lambda j: _signed(j, "masked", _masked_body(j, statement=_other(j))), 422, "message-forged"),
    "people-of-nobody": (lambda j: _signed(j, "masked", _masked_body(j, people={"email": to_text(bytes(68))})), 422, "message-malformed"),
    "people-of-another-width": (lambda j: _signed(j, "masked", _masked_body(j, adds=[ONE], people={"email": to_text(bytes(67))})), 422, "message-malformed"),
    "people-of-no-kind": (lambda j: _signed(j, "masked", _masked_body(j, adds=[ONE], people={"E-Mail": to_text(bytes(68))})), 422, "message-malformed"),
    "no-people": (lambda j: _signed(j, "masked", {name: part for name, part in _masked_body(j).items() if name != "people"}), 422, "message-malformed"),
    "more-than-stated": (lambda j: _signed(j, "masked", {**_masked_body(j), "adds": [ONE]}), 422, "mask-mismatch"),
    "other-keys-seen": (lambda j: _signed(j, "masked", _masked_body(j, statement=_unseen(j))), 422, "mask-mismatch"),
    "added-twice": (lambda j: _signed(j, "masked", _masked_body(j, adds=[ONE, ONE])), 422, "release-mismatch"),
    "released-unasked": (lambda j: _signed(j, "masked", _masked_body(j, releases=["r0"])), 422, "release-mismatch"),
    "added-again": (lambda j: _signed(j, "masked", _masked_body(j, adds=[{**ONE, "record": "r1"}])), 409, "conflict"),
}  # fmt: skip


def _stated(joining: Joining, **changes: str) -> dict[str, Any]:
    found = json.loads(_masked_body(joining)["statement"])
    return {**found, "body": {**found["body"], **changes}}


def _other(joining: Joining) -> str:
    return spell(_stated(joining, content=to_text(b"1" * 32))).decode()


def _unseen(joining: Joining) -> str:
    body = _stated(joining, seen=to_text(bytes(32)))["body"]
    return _signed(joining, "statement", body).decode()


def _forged(joining: Joining) -> bytes:
    document = json.loads(_signed(joining, "masked", _masked_body(joining)))
    document["signature"] = to_text(bytes(64))
    return rfc8785.dumps(document)


def test_masked_inputs_that_are_not_taken(masked: Masked) -> None:
    """In one round: a refused message leaves nothing behind that the next could meet."""
    masked.round("c1", "c2", "c3")  # so that "r1" is known
    round_id, joining = opened(masked)
    masked.take(joining, 2)
    for case, (build, status, name) in MASKED.items():
        answer = _put(masked, round_id, "masked", build(joining[0]))
        assert (answer.status_code, slug(answer)) == (status, name), (case, answer.text)
        assert masked.view(round_id)["sent"]["masked"] == 0, case
    masked.take(joining[:1], 1)  # the honest one is taken after all
    assert masked.view(round_id)["sent"]["masked"] == 1


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("max_contribution_rows", "a member adds at most 2 records"),
        ("max_contribution_owners", "a member adds records of at most 2 subjects"),
    ],
)
def test_additions_are_bounded_because_others_wait_for_them(
    masked: Masked, setting: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(masked.installation.services.settings.__dict__, setting, 2)
    round_id, joining = opened(masked)
    masked.take(joining, 2)
    adds = [{"record": f"n{number}", "subject": f"s{number}"} for number in range(3)]
    with monkeypatch.context() as unlocked:  # the log's lock is not taken
        unlocked.setattr(member, "send", lambda *_: pytest.fail("taken"))
        many = _signed(joining[0], "masked", _masked_body(joining[0], adds=adds))
        answer = _put(masked, round_id, "masked", many)
    assert (answer.status_code, slug(answer)) == (422, "message-malformed")
    assert answer.json()["detail"].startswith(said)
    few = _signed(joining[0], "masked", _masked_body(joining[0], adds=adds[:2]))
    assert _put(masked, round_id, "masked", few).status_code == 200


def test_an_erased_record_does_not_come_back_in_a_round(learned: Masked) -> None:
    gone = learned.owned("c0")[0]
    learned.installation.caller.erase_records(gone)
    learned.installation.drain()
    learned.round(*FOUR)
    round_id, joining = opened(learned)
    learned.take(joining, 2)
    body = _masked_body(joining[0], adds=[{"record": gone, "subject": "c0"}])
    answer = _put(learned, round_id, "masked", _signed(joining[0], "masked", body))
    assert (answer.status_code, slug(answer)) == (409, "conflict")
    assert gone not in answer.text


def test_nothing_is_added_of_an_owner_that_is_erased(learned: Masked) -> None:
    learned.installation.caller.erase({"level": "client", "client": "c0"})
    learned.installation.drain()
    round_id, joining = opened(learned)
    learned.take(joining, 2)
    body = _masked_body(
        joining[0],
        adds=[{"record": "new", "subject": "c0"}],
        releases=sorted(learned.owned("c0")),
    )
    answer = _put(learned, round_id, "masked", _signed(joining[0], "masked", body))
    assert (answer.status_code, slug(answer)) == (422, "release-mismatch")


def test_contributions_go_through_rounds(masked: Masked) -> None:
    answer = masked.contribute("c0", masked.message(masked.owned("c0")))
    assert (answer.status_code, slug(answer)) == (422, "upload-invalid")
    assert "/v1/rounds" in answer.json()["detail"]


def test_a_message_over_the_small_limit_is_taken(masked: Masked) -> None:
    """The limit of a body is for JSON that people write; a vector has its own."""
    round_id, joining = opened(masked)
    joining[0].step()
    data = b" " * (masked.installation.settings.max_body_bytes + 1)
    answer = _put(masked, round_id, "advertise", data)
    assert (answer.status_code, slug(answer)) == (422, "message-malformed")


def test_an_operator_ends_a_round(masked: Masked) -> None:
    round_id, joining = opened(masked)
    masked.take(joining, 2)
    path = f"/v1/rounds/{round_id}/abort"
    ended = masked.installation.caller.operator("POST", path)
    assert ended.status_code == 200
    assert ended.json()["state"] == "failed"
    assert ended.json()["reason"].startswith("aborted: ")
    again = masked.installation.caller.operator("POST", path)
    assert (again.status_code, slug(again)) == (409, "round-step")
    assert joining[0].step()["reason"].startswith("aborted: "), "members are told"
    assert masked.open(*FOUR).status_code == 201
