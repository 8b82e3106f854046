"""A message for a job whose turn it is not does not delay others."""

import pytest
from sqlmodel import Session, col, select

from models import Job
from tests.installation import Installation
from workers.jobs import certify, execute, verify


def test_a_nudge_out_of_turn_does_not_ask_for_the_logs_lock(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the writer was asked")

    for record in ("r1", "r2", "r3"):
        assert ready.caller.erase_records(record).status_code == 202
    with Session(ready.services.engine) as session:
        query = select(Job.id).where(Job.kind == "erase").order_by(col(Job.seq))
        first, *others = session.exec(query).all()
    with monkeypatch.context() as patch:
        patch.setattr(ready.services.ledger, "transact", never)
        for later in others:
            execute.run(ready.services, later)
        verify.run(ready.services, first)
        certify.run(ready.services, first)
        execute.run(ready.services, "no-job")
    ready.drain()
    ready.check()


def test_each_of_many_requests_is_certified_with_one_nudge(ready: Installation) -> None:
    for record in ("r1", "r2", "r3"):
        assert ready.caller.erase_records(record).status_code == 202
    assert len(ready.dispatcher.nudges) == 1
    ready.drain()
    with Session(ready.services.engine) as session:
        query = select(Job.stage).where(Job.kind == "erase")
        assert session.exec(query).all() == ["done"] * 3
