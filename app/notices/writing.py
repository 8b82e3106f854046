"""Transactions of notices, separate from those of the log."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session

from app.ledger.authority import require_authority
from app.notices import events
from app.notices.notice import delivery_id
from app.service.context import Services
from models import Delivery
from models.database.types import clock

T = TypeVar("T")
Owed = tuple[str, str, str]  # receiver, event, about
AT_ONCE = 50  # rows of one statement, of ten values each


def write(services: Services, effect: Callable[[Session], T]) -> T:
    """Run `effect` in a transaction of its own; rows that it returns stay readable."""

    def run() -> T:
        with Session(services.engine, expire_on_commit=False) as session:
            require_authority(session)
            result = effect(session)
            session.commit()
            return result

    return services.ledger.beside(run)


def put(
    services: Services,
    session: Session,
    owed: Iterable[Owed],
    lanes: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Store deliveries as waiting; known ones stay as they are.

    lanes: of callbacks, by receiver.
    """
    now = clock(session)
    rows = {
        delivery_id(services, *one): {
            "receiver": one[0],
            "lane": lanes.get(one[0]),
            "event": one[1],
            "about": one[2],
            "created_at": now,
            "state": events.WAITING,
            "attempts": 0,
            "next_at": now,
            "lease_token": 0,
        }
        for one in owed
    }
    dialect = sqlite if session.get_bind().dialect.name == "sqlite" else postgresql
    made = [{"id": name, **row} for name, row in rows.items()]
    for at in range(0, len(made), AT_ONCE):
        some = dialect.insert(Delivery).values(made[at : at + AT_ONCE])
        session.connection().execute(some.on_conflict_do_nothing())
