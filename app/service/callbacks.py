"""How many callbacks a key or agent may have: the service must not help to flood others.

All callbacks of one owner are sent one after the other: the limit bounds how many notices wait,
and the owner's lane how many are being sent.
"""

from sqlmodel import Session, col, func, select

from app.problems import CallbackLimitError
from app.service.context import Services
from models import Callback


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
