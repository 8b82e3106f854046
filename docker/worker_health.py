"""HEALTHCHECK of the worker image: exits with 0 while the work that can be done is done.

A ping is answered by a worker that hangs, and a heartbeat thread outlives the loop it
speaks for. So this asks for the outcome instead: no job that needs nothing but a worker has
been left lying for MAX_WAIT. If one has, no worker serves this database, or the broker or the
schedule is down. The process itself needs no check: a container ends with it.
"""

import sys
from datetime import timedelta

from sqlalchemy import func
from sqlmodel import Session, col, or_, select

from app.service.queue import waits_for_a_worker
from app.settings import Settings
from models import Job
from models.database.session import make_engine, reading
from models.database.types import utcnow
from models.job import PARKED

MAX_WAIT = timedelta(minutes=5)  # a lost nudge costs LETHE_SWEEP_SECONDS, a crash one lease


def main() -> None:
    """Exit with 0, or with 1 and how many models wait."""
    settings = Settings()
    engine = make_engine(settings.resolved_database_url)
    with Session(reading(engine)) as session:
        now = utcnow()
        # Jobs of one model run one at a time: the oldest is free to run from the moment its
        # predecessor was done.
        oldest = (
            select(func.min(col(Job.seq)))
            .where(*waits_for_a_worker(settings, now))
            .group_by(col(Job.model_id))
        )
        recent = or_(
            col(Job.done_at) >= now - MAX_WAIT,
            col(Job.done_at).is_(None) & (col(Job.lease_until) >= now - MAX_WAIT),
        )
        busy = select(Job.model_id).where(col(Job.stage) != PARKED, recent)
        waiting = select(func.count()).where(
            col(Job.seq).in_(oldest),
            col(Job.created_at) < now - MAX_WAIT,
            col(Job.model_id).not_in(busy),
        )
        count = session.exec(waiting).one()
    engine.dispose()
    if count:
        sys.exit(f"{count} models wait for a worker longer than {MAX_WAIT}")


if __name__ == "__main__":
    try:
        main()
    except Exception as error:  # a driver's text may repeat the URL's user and host
        sys.exit(f"the database cannot be asked: {type(error).__name__}")
