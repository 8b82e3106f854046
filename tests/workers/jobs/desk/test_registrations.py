"""By the log, a key's registrant submits what it signs: nobody erases data alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlmodel import Session, select

from app.ledger.journal import record_key_event
from app.ledger.key_rows import key_rows
from app.problems import ForbiddenError
from app.reconcile.findings import Finding
from app.reconcile.fsck.approvals import OWN, UNAPPROVED, UNKNOWN
from app.reconcile.fsck.registrations import LOST, OTHERWISE, UNLOGGED, UNOPENED
from app.reconcile.fsck.run import fsck
from app.service.access import keys
from app.service.desk import decisions
from lethe.signing.keys import generate_key, public_pem
from models import KeyEvent, Record, RequesterKey, Subject
from tests.app.ledger.samples import tamper
from tests.installation import Installation, named
from tests.small import Caller
from tests.workers.jobs.desk.test_fsck_approvals import executed, plant
from tests.workers.jobs.desk.test_review import decide, events, other, state, write

Change = Callable[[RequesterKey], None]


@pytest.fixture
def reviewed(installation: Installation) -> Installation:
    """An installation with a model that officers decide on; `alice` is of another operator."""
    installation.ready(decide="review")
    return installation


@pytest.fixture
def desk(reviewed: Installation) -> Caller:
    """An operator who has registered a key of their own, `desk-key`."""
    caller = replace(named(reviewed, "desk"), keyid="desk-key")
    assert caller.register_key().status_code == 201
    return caller


@pytest.fixture
def bound(reviewed: Installation) -> Caller:
    """An operator who has registered a key of their own and bound it to a client."""
    caller = replace(named(reviewed, "desk"), keyid="client-0")
    shown = caller.register_key(client="c0")
    assert shown.status_code == 201
    assert (shown.json()["registered_by"], shown.json()["confirmed_by"]) == ("desk", None)
    return caller


def forged(installation: Installation, change: Change, keyid: str = "client-0") -> None:
    """Change the row of a key with its MAC, which an attacker without keys cannot."""
    with Session(installation.services.engine) as session:
        row = session.get_one(RequesterKey, keyid)
        change(row)
        key_rows(session).seal(row)
        session.commit()


def setting(**values: Any) -> Change:
    """Return a change of these columns."""

    def change(row: RequesterKey) -> None:
        for name, value in values.items():
            setattr(row, name, value)

    return change


def pushed(installation: Installation, request: str) -> None:
    """Pass a request to the workers, in the tables."""
    write(
        installation,
        "UPDATE erasure_requests SET state = 'received' WHERE id = :id",
        {"id": request},
    )
    write(
        installation,
        "UPDATE jobs SET stage = 'execute' WHERE request_id = :id",
        {"id": request},
    )
    installation.recover()
    installation.drain()


def waits(installation: Installation, request: str) -> None:
    """Check that a request was not executed, and waits for an officer."""
    assert "executed" not in events(installation, request)
    assert state(installation, request)["state"] == "awaiting-review"


def found(installation: Installation) -> list[str]:
    """Return fsck's findings."""
    return [one.detail for one in fsck(installation.services.ledger).findings]


def confirm(caller: Caller, keyid: str = "client-0") -> Any:
    """Return the response to the confirmation of a key."""
    body = {"public_key": public_pem(caller.key)}
    return caller.operator("POST", f"/v1/keys/{keyid}/confirm", json=body)


def test_who_registered_the_key_does_not_approve_what_it_signs(
    reviewed: Installation, desk: Caller
) -> None:
    accepted = desk.erase_records("r1").json()
    for name in ("desk", "DESK", "sso:desk", "SSO:Desk", "desk-key"):
        with pytest.raises(ForbiddenError):
            decisions.approve(reviewed.services, accepted["ref"], name)
    shown = desk.operator("GET", f"/v1/cases/{accepted['ref']}").json()
    assert shown["timeline"][0]["detail"] == {"registered_by": "desk"}
    # The history is the person's.
    assert "desk" not in str(state(reviewed, accepted["id"])["history"])
    refused = decide(desk, accepted["ref"], "approve")
    assert refused.status_code == 403
    assert "registered" in refused.json()["detail"]
    # The log has the registrant, whatever the row says.
    forged(reviewed, setting(registered_by="somebody"), "desk-key")
    assert decide(desk, accepted["ref"], "approve").status_code == 403
    forged(reviewed, setting(registered_by="desk"), "desk-key")
    assert decide(other(reviewed), accepted["ref"], "approve").status_code == 200
    reviewed.drain()
    assert state(reviewed, accepted["id"])["state"] == "certified"
    reviewed.check()


def test_an_approval_by_the_registrant_is_not_executed_and_is_found(
    reviewed: Installation, desk: Caller
) -> None:
    accepted = desk.erase_records("r1").json()
    approved = plant(reviewed, accepted["ref"], "request.approved", by="Sso:Desk")
    pushed(reviewed, accepted["id"])
    waits(reviewed, accepted["id"])
    again = plant(reviewed, accepted["ref"], "request.approved", by="desk")
    done = executed(reviewed, accepted["ref"])
    assert fsck(reviewed.services.ledger).findings == [
        Finding("approval", OWN, approved),
        Finding("approval", OWN, again),
        Finding("approval", UNAPPROVED, done),
    ]


def test_a_bound_key_waits_until_another_person_has_confirmed_it(
    reviewed: Installation, bound: Caller
) -> None:
    first = bound.erase_records("r0").json()
    assert first["state"] == "awaiting-review"
    pushed(reviewed, first["id"])
    waits(reviewed, first["id"])
    assert decide(bound, first["ref"], "approve").status_code == 403
    assert confirm(bound).status_code == 403
    for name in ("DESK", "sso:Desk"):
        with pytest.raises(ForbiddenError):
            keys.confirm(reviewed.services, "client-0", public_pem(bound.key), name)
    officer = named(reviewed, "officer", "officer")
    for _ in range(2):  # the first response may be lost
        shown = confirm(officer)
        assert shown.status_code == 200, shown.text
        assert shown.json()["confirmed_by"] == "officer"
    second = bound.erase_records("r5").json()
    assert second["state"] == "received"
    reviewed.drain()
    assert state(reviewed, second["id"])["state"] == "certified"
    # Earlier signatures still wait: a second person confirms only later ones.
    pushed(reviewed, first["id"])
    waits(reviewed, first["id"])
    assert decide(officer, first["ref"], "approve").status_code == 200
    reviewed.drain()
    assert state(reviewed, first["id"])["state"] == "certified"
    reviewed.check()
    with Session(reviewed.services.engine) as session:
        written = session.exec(select(KeyEvent).order_by(KeyEvent.log_index)).all()  # type: ignore[arg-type]
        assert [one.event for one in written] == [
            "key.registered",
            "key.registered",
            "key.confirmed",
        ]
        assert not any("c0" in one.payload.values() for one in written)


def test_what_is_not_confirmed(reviewed: Installation, bound: Caller) -> None:
    officer = named(reviewed, "officer", "officer")
    assert confirm(officer, "alice").status_code == 409  # bound to no client
    assert confirm(officer, "nobody").status_code == 404
    another = replace(officer, key=generate_key("ed25519"))
    assert confirm(another).status_code == 409  # not the registered key
    assert officer.operator("POST", "/v1/keys/client-0/confirm").status_code == 422
    auditor = named(reviewed, "auditor", "auditor")
    assert confirm(auditor).status_code == 403
    assert officer.operator("GET", "/v1/keys").status_code == 200  # lists the owners of keys
    assert officer.operator("DELETE", "/v1/keys/client-0").status_code == 403
    assert replace(officer, keyid="own").register_key().status_code == 403
    assert bound.operator("DELETE", "/v1/keys/client-0").status_code == 200
    assert confirm(officer).status_code == 404  # revoked


FORGED: dict[str, Change] = {
    "confirmed": setting(confirmed_by="officer"),
    "not registered": setting(
        confirmed_by="officer", ref="6f0c2f0e-54f3-4f43-a4c5-0d8f4f4b9f51"
    ),
    "no ref": setting(confirmed_by="officer", ref=None),
}


@pytest.mark.parametrize("change", FORGED)
def test_a_row_that_the_log_does_not_have_executes_nothing(
    reviewed: Installation, bound: Caller, change: str
) -> None:
    forged(reviewed, FORGED[change])
    accepted = bound.erase_records("r0").json()
    assert accepted["state"] == "received"  # as the row says
    reviewed.drain()
    waits(reviewed, accepted["id"])
    assert decide(bound, accepted["ref"], "approve").status_code in (403, 409)
    assert found(reviewed) == [OTHERWISE]


def test_a_key_that_is_in_the_table_alone_has_nothing_executed_at_all(
    reviewed: Installation,
) -> None:
    """Its MAC is valid: an attacker without the keys cannot even do that."""
    mallory = replace(reviewed.caller, keyid="mallory")
    with Session(reviewed.services.engine) as session:
        row = session.get_one(RequesterKey, "alice")
        planted = RequesterKey(**row.model_dump() | {"keyid": "mallory", "ref": None})
        key_rows(session).seal(planted)
        session.add(planted)
        session.commit()
    accepted = mallory.erase_records("r1").json()
    refused = decide(other(reviewed), accepted["ref"], "approve")
    assert (refused.status_code, refused.json()["type"].split(":")[-1]) == (409, "key-unlogged")
    approved = plant(reviewed, accepted["ref"], "request.approved", by="officer")
    pushed(reviewed, accepted["id"])
    waits(reviewed, accepted["id"])
    assert found(reviewed) == [UNKNOWN, UNLOGGED]
    assert fsck(reviewed.services.ledger).findings[0].log_index == approved


def test_a_registration_of_another_key_does_not_vouch_for_this_one(
    reviewed: Installation, bound: Caller
) -> None:
    confirm(named(reviewed, "officer", "officer"))
    with Session(reviewed.services.engine) as session:
        ref = session.get_one(RequesterKey, "client-0").ref
    mine = replace(bound, keyid="mine")
    assert mine.register_key(client="c1").status_code == 201
    forged(
        reviewed,
        setting(ref=ref, confirmed_by="officer"),
        "mine",
    )
    accepted = mine.erase_records("r1").json()
    reviewed.drain()
    waits(reviewed, accepted["id"])
    assert found(reviewed) == [OTHERWISE]


@pytest.mark.parametrize(
    "change",
    [
        setting(client="c1"),
        setting(client=None),
        setting(subject="jane"),
        setting(role="client"),
    ],
    ids=["another client", "none", "a subject", "another role"],
)
def test_a_binding_that_differs_is_found(
    reviewed: Installation, bound: Caller, change: Change
) -> None:
    confirm(named(reviewed, "officer", "officer"))
    assert found(reviewed) == []
    forged(reviewed, change)
    assert found(reviewed) == [OTHERWISE]


def test_a_binding_that_was_put_in_is_not_the_confirmed_one(
    reviewed: Installation, desk: Caller
) -> None:
    forged(
        reviewed,
        setting(client="c0", confirmed_by="x"),
        "desk-key",
    )
    accepted = desk.erase_records("r0").json()
    reviewed.drain()
    waits(reviewed, accepted["id"])
    assert found(reviewed) == [OTHERWISE]


def test_an_opening_that_is_gone_or_changed_ends_what_it_allowed(
    reviewed: Installation, bound: Caller
) -> None:
    confirm(named(reviewed, "officer", "officer"))
    accepted = bound.erase_records("r0").json()
    tamper(
        reviewed.services.engine,
        "DELETE FROM key_events WHERE event = 'key.registered' AND log_index = "
        "(SELECT max(log_index) FROM key_events WHERE event = 'key.registered')",
    )
    reviewed.drain()
    waits(reviewed, accepted["id"])
    assert decide(other(reviewed), accepted["ref"], "approve").status_code == 409
    assert confirm(other(reviewed)).status_code == 409
    assert found(reviewed) == [UNOPENED, UNLOGGED]
    tamper(
        reviewed.services.engine,
        "UPDATE key_events SET event = 'key.registered' WHERE event = 'key.confirmed'",
    )
    assert found(reviewed) == [UNOPENED, UNLOGGED]


def test_an_opening_of_another_registration_is_none(
    reviewed: Installation, desk: Caller
) -> None:
    """Somebody else registered the same key later: that opening replaces one's own."""
    accepted = desk.erase_records("r1").json()
    write(reviewed, "UPDATE requester_keys SET mac = 'x' WHERE keyid = 'desk-key'", {})
    again = replace(named(reviewed, "second"), keyid="desk-key", key=desk.key)
    assert again.register_key().status_code == 201
    with Session(reviewed.services.engine) as session:
        rows = session.exec(select(KeyEvent)).all()
        mine = max(one.log_index for one in rows if one.payload["by"] == "desk")
        theirs = max(one.log_index for one in rows)
    columns = ", ".join(
        f"{name} = (SELECT {name} FROM key_events WHERE log_index = {theirs})"
        for name in ("payload", "key", "at")
    )
    tamper(
        reviewed.services.engine, f"UPDATE key_events SET {columns} WHERE log_index = {mine}"
    )
    refused = decide(desk, accepted["ref"], "approve")
    assert (refused.status_code, refused.json()["type"].split(":")[-1]) == (409, "key-unlogged")
    plant(reviewed, accepted["ref"], "request.approved", by="desk")
    pushed(reviewed, accepted["id"])
    waits(reviewed, accepted["id"])
    assert UNOPENED in found(reviewed)


def test_a_confirmation_does_not_count_for_what_was_signed_before(
    reviewed: Installation, bound: Caller
) -> None:
    accepted = bound.erase_records("r0").json()
    confirm(named(reviewed, "officer", "officer"))
    pushed(reviewed, accepted["id"])
    waits(reviewed, accepted["id"])
    index = executed(reviewed, accepted["ref"])
    assert fsck(reviewed.services.ledger).findings == [Finding("approval", UNAPPROVED, index)]


def test_a_confirmed_key_that_was_bound_otherwise_is_not_free(
    reviewed: Installation, bound: Caller
) -> None:
    confirm(named(reviewed, "officer", "officer"))
    with Session(reviewed.services.engine) as session:
        subject = session.exec(select(Subject).join(Record)).first()
        assert subject is not None
        query = select(Record.record).where(Record.subject_id == subject.id)
        name, record = subject.subject, session.exec(query).first()
    forged(reviewed, setting(client=None, subject=name))
    accepted = bound.erase_records(str(record)).json()
    assert accepted["state"] == "received"
    reviewed.drain()
    waits(reviewed, accepted["id"])


def test_a_key_that_was_deleted_is_found(reviewed: Installation, bound: Caller) -> None:
    write(reviewed, "DELETE FROM requester_keys WHERE keyid = 'client-0'", {})
    assert found(reviewed) == [LOST]
    # Registered again by another person, it is theirs; the replaced row is not restored.
    again = replace(named(reviewed, "second"), keyid="client-0", key=bound.key)
    assert again.register_key(client="c0").status_code == 201
    assert found(reviewed) == []
    accepted = again.erase_records("r0").json()
    assert decide(again, accepted["ref"], "approve").status_code == 403
    assert decide(bound, accepted["ref"], "approve").status_code == 200


def test_the_registrant_at_the_time_of_a_request_stays_its_submitter(
    reviewed: Installation, desk: Caller
) -> None:
    accepted = desk.erase_records("r1").json()
    write(reviewed, "UPDATE requester_keys SET mac = 'x' WHERE keyid = 'desk-key'", {})
    again = replace(named(reviewed, "second"), keyid="desk-key", key=desk.key)
    assert again.register_key().status_code == 201
    assert decide(desk, accepted["ref"], "approve").status_code == 403
    assert decide(again, accepted["ref"], "approve").status_code == 200
    reviewed.drain()
    reviewed.check()


def test_a_confirmation_by_the_registrant_counts_for_nothing(
    reviewed: Installation, bound: Caller
) -> None:
    """Logged by somebody with the log's keys."""

    def effect(tx: Any) -> None:
        row = tx.session.get(RequesterKey, "client-0")
        said = {"keyid": "client-0", "by": "sso:Desk"}
        record_key_event(tx, row.ref, "key.confirmed", said)

    reviewed.services.ledger.transact(effect)
    forged(reviewed, setting(confirmed_by="sso:Desk"))
    accepted = bound.erase_records("r0").json()
    reviewed.drain()
    waits(reviewed, accepted["id"])
    index = executed(reviewed, accepted["ref"])
    assert fsck(reviewed.services.ledger).findings == [Finding("approval", UNAPPROVED, index)]
