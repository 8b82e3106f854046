"""One clock for all processes: the database's.

Machines' clocks differ, so a lease timed by one machine would end too early or late for
another. Times compared between machines (leases, cooling-off, deadlines) use this clock.
"""

from datetime import UTC, datetime

from sqlalchemy import Connection, func, select
from sqlmodel import Session

from models.database.types import utcnow


def clock(at: Session | Connection) -> datetime:
    """Return the database's current time, aware, in UTC; on SQLite this machine's.

    Not the transaction's start time: the transaction may have waited for the log's lock.
    """
    connection = at.connection() if isinstance(at, Session) else at
    if connection.dialect.name != "postgresql":
        return utcnow()
    now: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
    return now.astimezone(UTC)
