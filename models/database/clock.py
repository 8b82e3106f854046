"""One clock for all processes: the database's.

A lease that a worker takes until its own clock's noon is nobody's until another's noon. What is
compared between machines (leases, cool-downs, deadlines) is read here and not from the machine.
"""

from datetime import UTC, datetime

from sqlalchemy import Connection, func, select
from sqlmodel import Session

from models.database.types import utcnow


def clock(at: Session | Connection) -> datetime:
    """Return the database's present time, aware, in UTC; on SQLite this machine's.

    Not the time at which the transaction began: it may have waited for the log's lock since.
    """
    connection = at.connection() if isinstance(at, Session) else at
    if connection.dialect.name != "postgresql":
        return utcnow()
    now: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
    return now.astimezone(UTC)
