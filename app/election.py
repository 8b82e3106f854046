"""Electing one of several processes to run the schedule: a lease in the database.

A lease, not a lock: a frozen process would hold a lock for as long as its connection lives.
Two holders for a moment do no harm, because every scheduled task may run twice.
"""

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

from sqlalchemy import update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Engine
from sqlmodel import Session, col

from models import ScheduleLease
from models.database.types import clock

RENEW_S = 5.0
LEASES = 3  # renewal intervals that a lease lasts: two renewals may be missed


class Election:
    """Whether this process runs the schedule.

    renew_s: how often the lease is renewed; it lasts LEASES times as long. A schedule that
    runs more often needs a shorter interval, so that another process takes over sooner. now:
    this process's clock, in seconds.
    """

    def __init__(
        self,
        engine: Engine,
        renew_s: float = RENEW_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._holder = engine, uuid4().hex
        self._renew_s, self._now = renew_s, now
        self._lock = threading.Lock()
        self._leads, self._asked_at = False, -renew_s

    def leads(self) -> bool:
        """Take or renew the lease; False while another process holds it.

        The database is asked at most every `renew_s`. Raises what its driver raises.
        """
        with self._lock:
            if self._now() - self._asked_at >= self._renew_s:
                self._leads = False  # also if the database does not answer
                self._leads = self._take()
                self._asked_at = self._now()
            return self._leads

    def _take(self) -> bool:
        with Session(self._engine) as session:
            now = clock(session)
            until = now + timedelta(seconds=LEASES * self._renew_s)
            values = {"holder": self._holder, "until": until}
            own = (col(ScheduleLease.holder) == self._holder) | (
                col(ScheduleLease.until) <= now
            )
            connection = session.connection()
            taken = connection.execute(update(ScheduleLease).where(own).values(values))
            leads = taken.rowcount == 1
            if not leads:
                dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
                first = dialect.insert(ScheduleLease).values({"id": 1, **values})
                asked = first.on_conflict_do_nothing().returning(col(ScheduleLease.id))
                leads = connection.execute(asked).first() is not None
            session.commit()
            return leads
