"""fsck finds what a worker with all keys executed, or approved, without an officer."""

from dataclasses import replace
from typing import Any

import pytest
from sqlmodel import select

from app.ledger.journal import record_request_event
from app.ledger.transaction import Transaction
from app.reconcile.findings import Finding
from app.reconcile.fsck.approvals import EARLY, OWN, UNAPPROVED
from app.reconcile.fsck.run import fsck
from app.reconcile.fsck.state import Verified
from lethe.signing.keys import public_pem
from models import ErasureRequest
from models.database.types import utcnow
from tests.installation import Installation
from tests.workers.jobs.desk.test_cases import opened
from tests.workers.jobs.desk.test_people import ANN, named
from tests.workers.jobs.desk.test_review import decide, other, write


def plant(installation: Installation, ref: str, event: str, **payload: Any) -> int:
    """Log an event with the log's keys: its MAC, tree and signature are valid."""

    def effect(tx: Transaction) -> int:
        query = select(ErasureRequest).where(ErasureRequest.ref == ref)
        return record_request_event(tx, tx.session.exec(query).one(), event, payload)

    return installation.services.ledger.transact(effect)


def executed(installation: Installation, ref: str) -> int:
    """Log an execution."""
    return plant(installation, ref, "request.executed", head="00", method="ridge-exact")


def found(installation: Installation, held: Verified | None = None) -> list[Finding]:
    """Return fsck's findings, all about approvals."""
    findings = fsck(installation.services.ledger, held=held).findings
    assert all(one.check == "approval" for one in findings), findings
    return findings


def verified(installation: Installation) -> Verified:
    """Return the state after a run of fsck without findings."""
    report = fsck(installation.services.ledger)
    assert report.ok
    assert report.edge is not None
    return Verified(*report.edge, utcnow(), files=False)


def test_an_execution_without_an_approval_is_found(installation: Installation) -> None:
    installation.ready(decide="review")
    honest, planted, paused = (
        installation.caller.erase_records(record).json()["ref"] for record in ("r1", "r2", "r3")
    )
    assert decide(other(installation), honest, "approve").status_code == 200
    installation.drain()
    held = verified(installation)
    # An approval after the execution is too late; so is one that a pause has cancelled.
    index = executed(installation, planted)
    plant(installation, planted, "request.approved", by="mallory")
    assert found(installation) == [Finding("approval", UNAPPROVED, index)]
    plant(installation, paused, "request.approved", by="mallory")
    plant(installation, paused, "request.paused", by="mallory", reason="")
    second = executed(installation, paused)
    both = [Finding("approval", UNAPPROVED, one) for one in (index, second)]
    assert found(installation) == both
    assert found(installation, held) == both
    # The log says how the model was registered, whatever the table says.
    write(installation, "UPDATE models SET decide = 'at-once'", {})
    findings = fsck(installation.services.ledger).findings
    assert [one for one in findings if one.check == "approval"] == both
    assert {one.check for one in findings} == {"approval", "model"}


def test_a_request_moved_to_another_model_is_found_all_the_same(
    installation: Installation,
) -> None:
    installation.ready(decide="review")
    assert installation.caller.register_model(ref="free", decide="at-once").status_code == 201
    installation.drain()
    ref = installation.caller.erase_records("r1").json()["ref"]
    index = executed(installation, ref)
    moved = "UPDATE erasure_requests SET model_id = (SELECT id FROM models WHERE ref = 'free')"
    write(installation, moved, {})
    findings = fsck(installation.services.ledger).findings
    assert Finding("approval", UNAPPROVED, index) in findings


def test_what_needs_no_officer_is_no_finding(installation: Installation) -> None:
    installation.ready(decide="review")
    bound = replace(installation.caller, keyid="client-0")
    assert bound.register_key(client="c0").status_code == 201
    body = {"public_key": public_pem(bound.key)}
    path = "/v1/keys/client-0/confirm"
    assert other(installation).operator("POST", path, json=body).status_code == 200
    accepted = bound.erase_records("r0").json()
    installation.drain()
    assert installation.caller.http.get(f"/v1/requests/{accepted['id']}").json()["state"] == (
        "certified"
    )
    assert installation.caller.register_model(ref="free", decide="at-once").status_code == 201
    installation.drain()
    assert installation.caller.erase_records("r1", fields={"model": "free"}).status_code == 202
    installation.drain()
    installation.check()


def test_an_approval_by_the_submitter_is_found(installation: Installation) -> None:
    assert installation.caller.register_model(named(), decide="review").status_code == 201
    assert installation.caller.register_key().status_code == 201
    installation.drain()
    on_behalf = opened(installation, ANN).json()
    signed = installation.caller.erase_records("r2").json()["ref"]
    held = verified(installation)
    first = plant(installation, signed, "request.approved", by="Alice")  # the keyid is alice
    done = executed(installation, signed)
    part = on_behalf["parts"][0]
    by = on_behalf["opened_by"]
    second = plant(installation, part["request_ref"], "request.approved", by=by)
    wanted = [
        Finding("approval", OWN, first),
        Finding("approval", UNAPPROVED, done),
        Finding("approval", OWN, second),
    ]
    assert found(installation) == wanted
    assert found(installation, held) == wanted


def test_an_execution_before_the_time_to_withdraw_is_over_is_found(
    installation: Installation,
) -> None:
    installation.ready(decide="at-once", cooling_off_seconds=3600)
    ref = installation.caller.erase_records("r1").json()["ref"]
    index = executed(installation, ref)
    assert found(installation) == [Finding("approval", EARLY, index)]


@pytest.mark.parametrize("decided", ["review", "at-once"])
def test_what_was_verified_before_is_not_read_again(
    installation: Installation, decided: str
) -> None:
    installation.ready(decide=decided)
    ref = installation.caller.erase_records("r1").json()["ref"]
    plant(installation, ref, "request.approved", by="alice")
    assert [one.detail for one in found(installation)] == [OWN]
    report = fsck(installation.services.ledger)
    assert report.edge is not None
    assert found(installation, Verified(*report.edge, utcnow(), files=False)) == []
