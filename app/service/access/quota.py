"""How many open requests and callbacks one key may have, so that none crowds out the others.

Requests are counted in the transaction that stores one, under the log's lock, so concurrent
ones, at one process or several, count each other. Requests of cases have no key and do not
count. All callbacks of one owner are sent one after the other: their limit bounds how many
notices wait, and the owner's lane how many are being sent.
"""

from collections.abc import Sequence

from sqlalchemy import Dialect
from sqlmodel import Session, col, func, select

from app.problems import CallbackLimitError, QuotaError
from app.service.context import Services
from models import Callback, ErasureRequest
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


def check_limit(
    services: Services, session: Session, kind: str, owner: str, new: int = 0
) -> None:
    """Check that an owner may have one more callback; new: those that are not stored yet.

    Raises CallbackLimitError if it has LETHE_CALLBACKS_EACH of open requests already.
    """
    most = services.settings.callbacks_each
    if most == 0:
        raise CallbackLimitError("this service sends no callbacks: ask for the status instead")
    if living(session, kind, owner) + new >= most:
        raise CallbackLimitError(
            f"a key or agent may have callbacks for {most} open requests: send the request "
            "without one, or wait until earlier requests have ended"
        )


def living(session: Session, kind: str, owner: str) -> int:
    """Return how many callbacks an owner has whose addresses are stored."""
    query = select(func.count(func.distinct(col(Callback.id)))).where(
        Callback.kind == kind, Callback.owner == owner
    )
    return session.exec(query).one()
