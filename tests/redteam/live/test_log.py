"""Who can write a running service's database, and has no key, gets nothing signed."""

import os
import signal
from datetime import date

import httpx2
import pytest
from sqlalchemy import text
from sqlmodel import Session

from lethe.client.errors import ProblemError
from lethe.log.entries import event_leaf
from tests.app.ledger.test_foreign_entries import insert
from tests.e2e.harness import Processes, until
from tests.redteam.live.conftest import Target
from tests.small import MODEL

CLAIM = (
    "UPDATE records SET claimed_by = NULL WHERE id = "
    "(SELECT min(id) FROM records WHERE claimed_by IS NOT NULL)"
)


def _without_worker(processes: Processes) -> None:
    assert processes.worker is not None
    os.killpg(processes.worker.pid, signal.SIGKILL)
    processes.worker.wait()
    processes.worker = None


def _checkpoint(processes: Processes) -> str:
    return httpx2.get(f"{processes.base_url}/v1/log/checkpoint", timeout=30).text


def test_events_written_beside_the_service_are_not_signed(target: Target) -> None:
    processes = target.processes
    _without_worker(processes)
    with processes.requester() as requester:
        forged = requester.submit_erasure(MODEL, records=["r1"])
        before = _checkpoint(processes)
        with target.database() as engine, Session(engine) as session:
            find = text("SELECT ref FROM erasure_requests WHERE id = :id")
            ref = session.connection().execute(find, {"id": forged.id}).scalar_one()
            for event in ("request.executed", "request.verified"):
                first = insert(session, event_leaf(event, ref, bytes(32), date(2026, 1, 2)))
            session.connection().execute(text("UPDATE jobs SET stage = 'certify'"))
            session.commit()
        with pytest.raises(ProblemError) as refused:
            requester.submit_erasure(MODEL, records=["r2"])
    assert refused.value.status == 503
    processes.start_worker()
    worker = processes.worker
    assert worker is not None
    until(lambda: worker.poll() is not None, "the worker to refuse the log")
    assert (
        f"entry {first - 1} was not written by this installation"
        in (processes.directory / "worker.log").read_text()
    )
    assert _checkpoint(processes) == before
    assert target.fsck() == 1
    with target.database() as engine, engine.connect() as connection:
        for table in ("certificates", "verifications"):
            count = connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
            assert count == 0


def test_a_record_whose_claim_was_taken_away_is_missed(target: Target) -> None:
    processes = target.processes
    _without_worker(processes)
    with processes.requester() as requester:
        request = requester.submit_erasure(MODEL, records=["r1", "r6"])
        with target.database() as engine, engine.begin() as connection:
            assert connection.execute(text(CLAIM)).rowcount == 1
        processes.start_worker()
        until(
            lambda: requester.status(request.id).state in ("needs-decision", "certified"),
            "the request",
            processes.worker,
        )
        shown = requester.status(request.id)
    assert shown.state == "needs-decision"
    assert target.fsck() == 0
