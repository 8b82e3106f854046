"""fsck of the end of retention: what the tables say of it is what the log says."""

from typing import Any

import pytest
from sqlmodel import Session, select

from app.ledger.transaction import Transaction
from app.purge import retention
from app.reconcile.fsck.cases import FAKED, UNLIKE
from app.reconcile.fsck.retention import EARLY, OVERDUE
from app.reconcile.fsck.run import fsck
from app.reconcile.holds import UNTARGETED
from models import Case, ErasureRequest, RetentionRemoval
from tests.app.purge.test_moved_times import LONG_AGO, OTHER, contacted, end, held, row, write
from tests.app.purge.test_retention import BOTH, certified, late
from tests.installation import Installation
from tests.small import MODEL


def found(at: Installation, **periods: int) -> set[str]:
    """Return the findings. periods: settings of retention."""
    settings = at.settings.model_copy(update=periods) if periods else None
    return {one.detail for one in fsck(at.services.ledger, settings=settings).findings}


def listed(at: Installation, kind: str, ref: str) -> None:
    """End a retention as the service did that trusted the tables."""

    def removed(tx: Transaction) -> None:
        tx.session.add(RetentionRemoval(kind=kind, ref=ref, before=tx.now, at=tx.now))

    at.services.ledger.transact(removed)
    at.services.ledger.transact(retention.log_removals)


def test_an_open_request_that_was_emptied_is_found(ready: Installation) -> None:
    ready.caller.erase_records("r1", "r2")

    def emptied(tx: Transaction) -> None:
        request = tx.session.exec(select(ErasureRequest)).one()
        retention.destroy_scope(ready.services, tx, request)

    ready.services.ledger.transact(emptied)
    listed(ready, "scope", row(ready).ref)
    assert found(ready) == {EARLY}


def test_an_interrupted_run_is_compared_too(ready: Installation) -> None:
    ready.caller.erase_records("r1", "r2")

    def removed(tx: Transaction) -> None:
        request = tx.session.exec(select(ErasureRequest)).one()
        retention.destroy_scope(ready.services, tx, request)
        tx.session.add(
            RetentionRemoval(kind="scope", ref=request.ref, before=tx.now, at=tx.now)
        )

    ready.services.ledger.transact(removed)
    assert found(ready) == {EARLY}


def test_the_contact_of_an_open_case_that_was_destroyed_is_found(ready: Installation) -> None:
    ref = contacted(ready)

    def emptied(tx: Transaction) -> None:
        tx.session.get_one(Case, ref).contact = None

    ready.services.ledger.transact(emptied)
    assert found(ready) == {FAKED}
    listed(ready, "contact", ref)
    assert found(ready) == {EARLY}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("due_at = :then", UNLIKE),
        ("received_at = :then", UNLIKE),
        ("opened_by = :then", UNLIKE),
        ("key = NULL, contact = NULL, due_at = :then", FAKED),
    ],
)
def test_a_changed_case_is_found(ready: Installation, change: str, said: str) -> None:
    contacted(ready)
    assert found(ready) == set()
    write(ready, f"UPDATE cases SET {change}", then=LONG_AGO)
    assert said in found(ready)


def test_a_closed_case_has_no_contact(ready: Installation) -> None:
    ref = contacted(ready)
    ready.drain()
    assert ready.caller.operator("POST", f"/v1/cases/{ref}/close").status_code == 200
    assert found(ready) == set()


@pytest.mark.parametrize(
    "change",
    [
        "received_at = '2099-01-01 00:00:00.000000'",
        "received_at = '2015-01-01 00:00:00.000000'",
        "state = 'executing'",
        "state = 'failed'",
        "state = 'withdrawn'",
    ],
)
def test_a_changed_request_is_found(ready: Installation, change: str) -> None:
    certified(ready, "r1")
    assert found(ready) == set()
    write(ready, f"UPDATE erasure_requests SET {change}")
    (said,) = found(ready)
    assert "than its entry says" in said or "otherwise than in the log" in said


def test_an_open_request_that_is_stored_as_ended_is_found(ready: Installation) -> None:
    ready.caller.erase_records("r1")
    end(ready, "withdrawn")
    assert any("ended is stored otherwise" in one for one in found(ready))


def test_a_request_of_another_model_or_case_is_found(ready: Installation) -> None:
    contacted(ready)
    write(ready, "UPDATE erasure_requests SET case_ref = NULL")
    assert any("another case" in one for one in found(ready))
    write(ready, "UPDATE models SET ref = :ref", ref=OTHER)
    assert any("another model" in one for one in found(ready))


def test_a_hold_of_a_renamed_model_is_found(ready: Installation) -> None:
    held(ready, MODEL)
    assert found(ready) == set()
    write(ready, "UPDATE models SET ref = :ref", ref=OTHER)
    assert UNTARGETED in found(ready)


LAPSED: dict[str, Any] = {"request_retention_days": -3}


@pytest.mark.parametrize(
    "hidden",
    [
        None,
        "UPDATE erasure_requests SET received_at = '2099-01-01 00:00:00.000000'",
        "UPDATE erasure_requests SET forgotten_at = '2015-01-01 00:00:00.000000'",
        "UPDATE erasure_requests SET state = 'failed'",
        "UPDATE request_events SET at = '2099-01-01 00:00:00.000000'",
    ],
)
def test_what_is_overdue_by_the_log_is_found(ready: Installation, hidden: str | None) -> None:
    certified(ready, "r1", "r2")
    assert found(ready, request_retention_days=0) == set()
    assert found(ready, **LAPSED) == {OVERDUE}
    assert found(ready, evidence_retention_days=-3) == {OVERDUE}
    if hidden is not None:
        write(ready, hidden)
        retention.run(late(ready, **LAPSED))
        assert OVERDUE in found(ready, **LAPSED)
    else:
        assert retention.run(late(ready, **LAPSED)).removed == BOTH
        assert found(ready, **LAPSED) == set()


def test_what_is_held_is_not_overdue(ready: Installation) -> None:
    certified(ready, "r1", "r2")
    held(ready, MODEL)
    assert found(ready, **LAPSED) == set()


def test_an_overdue_case_is_found(ready: Installation) -> None:
    contacted(ready)
    ready.drain()
    assert found(ready, contact_retention_days=-400) == {OVERDUE}
    services = late(ready, contact_retention_days=-400, **LAPSED)
    assert retention.run(services).removed == BOTH | {"contact": 1, "case": 1}
    assert found(ready, contact_retention_days=-400, **LAPSED) == set()
    with Session(ready.services.engine) as session:
        assert session.exec(select(Case)).one().key is None
