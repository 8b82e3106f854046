"""A backlog of one model is processed in batches that do not block other models."""

from dataclasses import replace
from itertools import pairwise
from time import monotonic

import pytest
from sqlmodel import Session, col, select

from app.ledger.sequencer import Ledger
from app.settings import Settings
from models import Job, ModelVersion
from tests.installation import Installation, install
from workers.jobs import batch
from workers.leases import lease
from workers.leases.lease import LEAST, STAGE_S, Lease, Pace

LEASE = Lease("job", 1, "execute", 1, "erase", 7, "request", None, 1, None)


def begun(seconds: float, stage: str = "execute") -> Lease:
    """Return a lease taken this many seconds ago."""
    return replace(LEASE, stage=stage, begun=monotonic() - seconds)


def test_as_many_go_together_as_the_slowest_stage_takes_the_bound_for() -> None:
    known = Pace()
    assert known.most(7) == LEAST
    known.note(begun(0.1), 100)
    assert known.most(7) == pytest.approx(STAGE_S / 0.001, rel=0.05)
    known.note(begun(0.2, "verify"), 100)
    known.note(begun(0.05, "certify"), 100)
    assert known.most(7) == pytest.approx(STAGE_S / 0.002, rel=0.05)
    assert known.most(8) == LEAST


def test_however_slow_a_stage_is_the_least_go_together() -> None:
    known = Pace()
    known.note(begun(3600), LEAST)
    assert known.most(7) == LEAST


def test_what_few_requests_took_says_nothing_of_many() -> None:
    known = Pace()
    known.note(begun(0.001), LEAST - 1)
    assert known.most(7) == LEAST


def batches(installation: Installation, count: int) -> list[int]:
    """Certify a request for each of some records; return the batch sizes."""
    for number in range(count):
        assert installation.caller.erase_records(f"r{number}").status_code == 202
    installation.drain()
    with Session(installation.services.engine) as session:
        stages = session.exec(select(Job.stage).where(Job.kind == "erase")).all()
        query = select(ModelVersion.retained_count).order_by(col(ModelVersion.number))
        left = session.exec(query).all()
    assert set(stages) == {"done"}
    return [before - after for before, after in pairwise(left)]


def test_a_backlog_is_worked_off_in_groups_of_that_size(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEAST", 3)
    monkeypatch.setattr(batch, "PACE", Pace())
    assert batches(ready, 8) == [3, 3, 2]


def test_as_many_go_together_as_wait_for_one_another(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEAST", 1)
    monkeypatch.setattr(batch, "PACE", Pace())
    with install(settings.model_copy(update={"batch_min_requests": 4})) as made:
        made.ready()
        assert batches(made, 4) == [4]
