"""Whose turn it is: parked jobs stand aside, begun ones go first, and who waits for whom."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update
from sqlmodel import Session, col, select

from app.service import review
from app.service.queue import (
    DEADLINE_MARGIN,
    PARKED,
    head_of_queue,
    is_held_back,
    waiting_run,
)
from models import ErasureRequest, Job
from models.database.types import utcnow
from tests.installation import Installation, state
from workers.jobs import (
    execute,
    sweep,
)


def jobs(installation: Installation) -> list[Job]:
    with Session(installation.services.engine) as session:
        return list(session.exec(select(Job).order_by(col(Job.seq))))


def change(installation: Installation, job: Job | None = None, **values: Any) -> None:
    with Session(installation.services.engine) as session:
        statement = update(Job) if job is None else update(Job).where(col(Job.id) == job.id)
        session.connection().execute(statement.values(**values))
        session.commit()


def head(installation: Installation) -> str | None:
    with installation.services.reading() as session:
        found = head_of_queue(session, 1)
    return None if found is None else found.id


def run_of(installation: Installation, first: Job) -> list[str]:
    with installation.services.reading() as session:
        return [job.id for job in waiting_run(session, first)]


def test_a_sweep_nudges_although_another_of_its_steps_fails(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready.caller.erase_records("r1")
    change(ready, created_at=utcnow() - timedelta(minutes=1))
    ready.dispatcher.nudges.clear()

    def damaged(_: object) -> None:
        raise ValueError("a row cannot be opened")

    monkeypatch.setattr(review, "end_cooling_off", damaged)
    with pytest.raises(ValueError, match="cannot be opened"):
        sweep.run(ready.services)
    assert len(ready.dispatcher.nudges) == 1


def test_a_parked_job_blocks_nobody_and_is_left_alone(ready: Installation) -> None:
    first, second, third = (
        ready.caller.erase_records(f"r{number}").json()["id"] for number in (1, 2, 3)
    )
    _, parked, *others = jobs(ready)
    change(ready, parked, stage=PARKED)
    old = utcnow() - timedelta(minutes=1)
    change(ready, created_at=old)
    assert head(ready) == others[0].id
    assert run_of(ready, others[0]) == [job.id for job in others]
    ready.dispatcher.nudges.clear()
    assert sweep.run(ready.services) == 1
    assert ready.dispatcher.nudges.pop() == (others[0].id, "execute")
    execute.run(ready.services, parked.id)  # whoever nudges it all the same
    assert state(ready, first) == "received"
    ready.dispatcher.sweep(ready.services)
    assert [state(ready, one) for one in (first, second, third)] == [
        *("received", "certified", "certified")
    ]
    assert head(ready) is None
    assert sweep.run(ready.services) == 0
    assert not ready.dispatcher.nudges
    change(ready, parked, stage="execute")
    ready.dispatcher.sweep(ready.services)
    assert state(ready, first) == "certified"
    ready.check()


def test_a_job_that_returns_from_parking_waits_for_what_was_begun(ready: Installation) -> None:
    first = ready.caller.erase_records("r1").json()["id"]
    second = ready.caller.erase_records("r2").json()["id"]
    _, parked, begun = jobs(ready)
    change(ready, parked, stage=PARKED)
    execute.run(ready.services, begun.id)
    change(ready, parked, stage="execute")
    assert head(ready) == begun.id
    execute.run(ready.services, parked.id)
    assert (state(ready, first), state(ready, second)) == ("received", "verifying")
    change(ready, begun, stage="execute", step=2)
    assert head(ready) == begun.id
    change(ready, begun, stage="execute", step=1)
    assert head(ready) == parked.id
    change(ready, begun, lease_until=utcnow() + timedelta(minutes=1))
    assert head(ready) == begun.id


def test_a_run_ends_at_another_kind_stage_or_method(ready: Installation) -> None:
    for number in range(4):
        ready.caller.erase_records(f"r{number}")
    first, *rest = jobs(ready)[1:]
    assert run_of(ready, first) == [first.id, *(job.id for job in rest)]
    assert run_of(ready, rest[0]) == [job.id for job in rest]
    change(ready, rest[1], kind="learn")
    assert run_of(ready, first) == [first.id, rest[0].id]
    change(ready, rest[1], kind="erase", stage="verify")
    assert run_of(ready, first) == [first.id, rest[0].id]
    change(ready, rest[1], stage="done", done_at=utcnow())
    assert run_of(ready, first) == [first.id, rest[0].id, rest[2].id]
    with Session(ready.services.engine) as session:
        one = col(ErasureRequest.id) == rest[0].request_id
        session.connection().execute(update(ErasureRequest).where(one).values(method="acu"))
        session.commit()
    assert run_of(ready, first) == [first.id]
    change(ready, first, stage="verify")
    assert run_of(ready, jobs(ready)[1]) == []


@pytest.mark.parametrize(
    ("minimum", "waited", "left", "held"),
    [
        (1, 0, 30, False),
        (2, 0, 30, False),
        (3, 0, 30, True),
        (3, 599, 30, True),
        (3, 601, 30, False),
        (3, 0, 7, False),
        (3, 0, 8, True),
        (3, 0, -1, False),
    ],
)
def test_two_requests_are_held_back_until_k_or_t_or_their_deadline(
    ready: Installation, minimum: int, waited: int, left: int, held: bool
) -> None:
    for number in range(2):
        ready.caller.erase_records(f"r{number}")
    now = utcnow()
    change(ready, created_at=now - timedelta(seconds=waited))
    assert timedelta(days=7) == DEADLINE_MARGIN
    with Session(ready.services.engine) as session:
        due = update(ErasureRequest).values(due_at=now + timedelta(days=left))
        session.connection().execute(due)
        session.commit()
        first = jobs(ready)[1]
        settings = ready.settings.model_copy(
            update={"batch_min_requests": minimum, "batch_max_wait_seconds": 600}
        )
        assert is_held_back(session, settings, first, now) is held
        session.get_one(ErasureRequest, first.request_id).state = "executing"
        assert not is_held_back(session, settings, first, now)
