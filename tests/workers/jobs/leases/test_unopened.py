"""A request whose key the database has lost fails, and the requests behind it go on."""

import pytest
from sqlmodel import Session

from app.counters import STAGE_ERRORS
from app.ledger.transaction import Transaction
from app.purge import retention
from app.reconcile.fsck.run import fsck
from models import ErasureRequest, Model
from tests.doubles.dispatcher import STAGES
from tests.installation import Installation
from workers.jobs.leased import UNOPENED


def emptied(at: Installation, request: str) -> None:
    """Empty an open request, as the end of its retention would."""

    def empty(tx: Transaction) -> None:
        found = tx.session.get_one(ErasureRequest, request)
        retention.destroy_scope(at.services, tx, found)

    at.services.ledger.transact(empty)


def state(at: Installation, request: str) -> tuple[str, str | None]:
    shown = at.caller.http.get(f"/v1/requests/{request}").json()
    return shown["state"], shown["reason"]


def test_a_request_without_its_key_does_not_block_its_model(ready: Installation) -> None:
    first = str(ready.caller.erase_records("r1").json()["id"])
    second = str(ready.caller.erase_records("r2").json()["id"])
    emptied(ready, first)
    before = STAGE_ERRORS.read()
    ready.drain()
    ready.recover()
    assert state(ready, first) == ("failed", UNOPENED)
    assert state(ready, second) == ("certified", None)
    assert STAGE_ERRORS.read() != before
    said = {one.detail for one in fsck(ready.services.ledger).findings}
    assert any("no entry says that its retention ended" in one for one in said)
    assert any("ended is stored otherwise" in one for one in said)


@pytest.mark.parametrize("stage", ["verify", "certify"])
def test_an_executed_request_without_its_key_quarantines_its_model(
    ready: Installation, stage: str
) -> None:
    request = str(ready.caller.erase_records("r1").json()["id"])
    nudges = ready.dispatcher.nudges
    while nudges[0][1] != stage:
        STAGES[nudges[0][1]](ready.services, nudges.popleft()[0])
    emptied(ready, request)
    ready.drain()
    assert state(ready, request) == ("failed", UNOPENED)
    with Session(ready.services.engine) as session:
        assert session.get_one(Model, 1).state == "quarantined"
