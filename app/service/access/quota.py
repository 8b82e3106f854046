"""How many erasure requests one key may have open, so that no key fills the queue of others.

Counted in the transaction that stores a request, under the log's lock, so concurrent requests,
at one process or several, count each other. Requests of cases have no key and do not count.
"""

from collections.abc import Sequence

from sqlalchemy import Dialect
from sqlmodel import Session

from app.problems import QuotaError
from models import ErasureRequest
from models.database import bulk
from models.erasure_request import OPEN


def counting(dialect: Dialect, keyids: Sequence[str], most: int) -> bulk.Statement:
    """Return the statement that reads (keyid, number of open requests up to `most`)."""
    return bulk.over(dialect, _COUNT % most, _KEYID, [(keyid,) for keyid in keyids])


def check(most: int, held: int) -> None:
    """Check that a key with `held` open requests may have one more; most: 0 for no limit.

    Raises QuotaError if it has reached the limit.
    """
    if 0 < most <= held:
        raise QuotaError(most)


def check_now(session: Session, keyid: str, most: int) -> None:
    """Check a key in the session's snapshot. Raises QuotaError."""
    if most == 0:
        return
    connection = session.connection()
    (((_, held),),) = bulk.run(connection, counting(connection.dialect, [keyid], most))
    check(most, held)


_KEYID = bulk.types(ErasureRequest, keyid="keyid")
# An index-only scan of ix_erasure_requests_open. The limit also bounds the time.
_COUNT = (
    "SELECT given.keyid, (SELECT count(*) FROM (SELECT 1 FROM erasure_requests r "  # noqa: S608
    f"WHERE r.keyid = given.keyid AND {OPEN} LIMIT %d) AS counted) "
    "FROM {rows}"
)
