"""HEALTHCHECK of the worker image: exits with 0 while the work that can be done is done.

A ping is answered by a worker that hangs, and a heartbeat thread outlives the loop it
speaks for. So this asks for the outcome instead: no job that is free to run has been left
lying for MAX_WAIT. If one has, no worker serves this database, or the broker or the
schedule is down. The process itself needs no check: a container ends with it.
"""

import sys
from datetime import timedelta

from sqlalchemy import func
from sqlmodel import Session, col, or_, select

from app.settings import Settings
from models import Job, Model
from models.database.session import make_engine, reading
from models.database.types import utcnow

MAX_WAIT = timedelta(minutes=5)  # a lost nudge costs LETHE_SWEEP_SECONDS, a crash one lease


def main() -> None:
    """Exit with 0, or with 1 and how many models wait."""
    engine = make_engine(Settings().resolved_database_url)
    now = utcnow()
    # Jobs of one model run one at a time: the oldest unfinished one is the one free to run,
    # from the moment its predecessor was done.
    heads = (
        select(func.min(col(Job.seq)))
        .where(col(Job.done_at).is_(None))
        .group_by(col(Job.model_id))
    )
    free = or_(col(Job.lease_until).is_(None), col(Job.lease_until) < now - MAX_WAIT)
    old = col(Job.created_at) < now - MAX_WAIT
    busy = select(Job.model_id).where(col(Job.done_at) >= now - MAX_WAIT)
    waits_for_a_person = select(Model.id).where(Model.state == "quarantined")
    waiting = select(func.count()).where(
        col(Job.seq).in_(heads),
        free,
        old,
        col(Job.model_id).not_in(busy),
        col(Job.model_id).not_in(waits_for_a_person),
    )
    with Session(reading(engine)) as session:
        count = session.exec(waiting).one()
    engine.dispose()
    if count:
        sys.exit(f"{count} models wait for a worker longer than {MAX_WAIT}")


if __name__ == "__main__":
    try:
        main()
    except Exception as error:  # a driver's text may repeat the URL's user and host
        sys.exit(f"the database cannot be asked: {type(error).__name__}")
