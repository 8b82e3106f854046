"""What a workload is: something that is done while a fault strikes, and again after it.

Each may be interrupted anywhere and done again from its start, as its client or operator would:
with the same idempotency key, or the same call. It reports what it was told is done, as (kind,
value).
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import update
from sqlmodel import Session, col

from app.settings import Settings
from models import Audit, AuditPair, Job
from models.database.types import utcnow
from tests.installation import Installation
from tests.small import MODEL, ROWS

T = TypeVar("T")
Told = Callable[[str, Any], None]
TRIES = 4  # of a client that gets no answer, or one that says "later"
SWEEPS = 8  # until a worker's queue must be empty


class StuckError(Exception):
    """Somebody was refused what they may do, or was not answered in TRIES tries."""


@dataclass(frozen=True, eq=False)
class Workload:
    """Something that is done, and when it has ended.

    records: that are erased of the `rows` of `model`, and of those in `also`, in the end.
    requests: how many are stored then.
    """

    name: str
    act: Callable[[Installation, Told], None]
    ended: Callable[[Session], bool] = lambda _: True
    records: int = 0
    requests: int = 0
    state: str = "certified"  # that the requests end in
    model: str = MODEL
    also: tuple[str, ...] = ()
    rows: int = ROWS
    settings: dict[str, Any] = field(default_factory=dict)
    work: bool = False  # a worker runs beside it
    prepare: Callable[[Installation], None] | None = None  # done before, without a fault
    each: bool = False  # of two operators at once, each may do it: one after the other
    only: str | None = None  # the kind of database that it is for
    cases: int = 1  # that each person who does it may open
    # What is there twice, beside what no workload may have twice.
    doubled: Callable[[Session, Settings], list[str]] = lambda *_: []
    # What is wrong with what a fault left, before anything is done again; None: nothing.
    left: Callable[[Settings], str | None] = lambda _: None


def work(made: Installation, ended: Callable[[Session], bool]) -> None:
    """Be a worker with its schedule until `ended`, for SWEEPS sweeps at most.

    An error ends a task, not the worker: it is logged, and the next sweep comes.
    """
    for _ in range(SWEEPS):
        work_once(made)
        with suppress(Exception), made.services.reading() as session:
            if ended(session):
                return


def work_once(made: Installation) -> None:
    """Run what is queued, and once what the schedule finds."""
    with suppress(Exception):
        made.drain()
    with suppress(Exception):
        end_leases(made)
        made.dispatcher.nudges.clear()
        made.dispatcher.sweep(made.services)


def end_leases(made: Installation) -> None:
    """Let time pass: leases end, and nudges that were on their way are late."""
    past = utcnow().replace(year=2020)
    with Session(made.services.engine) as session:
        connection = session.connection()
        connection.execute(update(Job).values(created_at=past))
        for table in (Job, AuditPair):
            held = col(table.lease_until).is_not(None)
            connection.execute(update(table).where(held).values(lease_until=past))
        connection.execute(update(Audit).values(nudged_at=past))
        session.commit()


def tried(command: Callable[[], T]) -> T:
    """Run an operator's command until it succeeds, TRIES times. Raises StuckError."""
    seen = ""
    for attempt in range(TRIES):
        try:
            return command()
        except Exception as error:  # the command would have printed it and ended
            seen = repr(error)
        time.sleep(0.01 * attempt)
    raise StuckError(seen)
