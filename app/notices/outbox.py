"""The outbox: which notices are owed, read from the log by a cursor.

Accepting and certifying requests writes no deliveries. A sender reads the entries after the
cursor, and in one transaction writes the deliveries owed and moves the cursor: a crash loses
nothing, and of several senders one commits. It stops at an entry without a MAC (ADR 0032).
"""

from collections.abc import Sequence

from sqlalchemy import update
from sqlmodel import Session, col, select

from app.ledger import storage
from app.ledger.callback_rows import REQUEST, lane
from app.ledger.entry_macs import EntryRow
from app.notices import endpoints, events, mailings
from app.notices.callbacks import rows as callbacks
from app.notices.notice import today
from app.notices.writing import Owed, put, write
from app.service.context import Services
from models import ErasureRequest, Model, NoticeCursor, Webhook
from models.database.session import rows_in

PAGE = 500  # entries in one transaction
CURSOR = 1


def read_on(services: Services, *, again: bool = True) -> bool:
    """Write the deliveries owed by the next entries; return whether there may be more.

    again: read them once more if an endpoint was changed meanwhile, which would miss them.
    """
    key = services.ledger.entry_key
    assert key is not None
    with services.reading() as session:
        cursor = session.get(NoticeCursor, CURSOR)
        size = storage.read_size(session)
        if cursor is not None and cursor.next_index >= size:
            return False
        hooks = [one for one in endpoints.current(session) if one.disabled is None]
        outdated = again and endpoints.are_outdated(session)
        mail = mailings.are_on(services)
        # Read after the log's size: a callback is stored with its request's first entry.
        listened = bool(hooks) or mail or callbacks.are_any(session)
        start = size if cursor is None else cursor.next_index
        end = min(size, start + PAGE) if listened else size
        read = storage.read_entries(session, start, end) if listened else {}
        owed: list[Owed] = []
        foreign = False
        for index in range(start, end) if listened else ():
            if index not in read or not key.is_authentic(read[index]):
                # Notices resume at this index once the log is repaired.
                owed += alarms(services, hooks, f"log-entry-{index}", session)
                end, foreign = index, True
                break
        authentic = [read[index] for index in range(start, end) if index in read]
        owed += _of_webhooks(session, hooks, authentic)
        if mail:
            owed += mailings.owed(services, session, authentic)
        states = [(one.event or "", str(one.ref), one.index) for one in authentic]
        if cursor is None:  # the first run: callbacks only get the last state
            states = callbacks.last_states(session)
        called, lanes, ended = _of_callbacks(services, session, states)
        owed += called

    if outdated:
        return read_on(services, again=False)

    def effect(session: Session) -> bool:
        if cursor is None:
            session.add(NoticeCursor(id=CURSOR, next_index=end))
            session.flush()  # of two first runs, one fails and tries again
        elif end > start and not _move(session, start, end):
            return False  # another sender wrote the deliveries
        put(services, session, owed, lanes)
        for one in ended:
            callbacks.note(session, one, None, ended=True)
        return True

    return write(services, effect) and not foreign and end < size


def _move(session: Session, start: int, end: int) -> bool:
    moved = session.connection().execute(
        update(NoticeCursor)
        .where(col(NoticeCursor.id) == CURSOR, col(NoticeCursor.next_index) == start)
        .values(next_index=end)
    )
    return moved.rowcount == 1


def _of_webhooks(
    session: Session, hooks: Sequence[Webhook], entries: Sequence[EntryRow]
) -> list[Owed]:
    told = [
        (entry, events.OF_LOG[entry.event])
        for entry in entries
        if entry.event is not None and entry.event in events.OF_LOG
    ]
    narrow = any(hook.model is not None for hook in hooks)
    models = _models(session, [entry for entry, _ in told]) if narrow else {}
    return [
        (hook.id, event, str(entry.index))
        for entry, event in told
        for hook in hooks
        if event in hook.events and hook.model in (None, models.get(entry.index))
    ]


def _of_callbacks(
    services: Services, session: Session, entries: Sequence[tuple[str, str, int]]
) -> tuple[list[Owed], dict[str, str], list[str]]:
    """Return deliveries owed to callbacks, the lane of each, and the callbacks that ended.

    entries: event, ref and index of each.
    """
    key = callbacks.entry_key(services)
    told = [one for one in entries if one[0] in events.STATES]
    known = callbacks.followers(session, {ref for _, ref, _ in told})
    owed, lanes, ended = dict[str, Owed](), dict[str, str](), list[str]()
    for event, ref, index in sorted(told, key=lambda one: one[2]):  # the last of each counts
        for one in known.get(ref, ()):
            is_own = one.kind == REQUEST
            owed[one.id] = (one.id, events.STATE if is_own else events.STATUS, str(index))
            lanes[one.id] = lane(key, one.kind, one.owner)
            if is_own and events.STATES[event] in events.ENDS:
                ended.append(one.id)
    return list(owed.values()), lanes, ended


def _models(session: Session, entries: Sequence[EntryRow]) -> dict[int, str]:
    """Return each entry's model from the tables; the notice is checked again when sent."""
    refs = {str(one.ref) for one in entries if (one.event or "").startswith("request.")}
    query = select(ErasureRequest.ref, Model.ref).join(
        Model, col(Model.id) == col(ErasureRequest.model_id)
    )
    known = dict(rows_in(session, query, col(ErasureRequest.ref), sorted(refs)))
    return {
        one.index: known.get(str(one.ref), "") if str(one.ref) in refs else str(one.ref)
        for one in entries
    }


def alarms(
    services: Services, hooks: Sequence[Webhook], alarm: str, session: Session
) -> list[Owed]:
    """Return the deliveries of an alarm: one a day for each receiver."""
    about = f"{alarm}@{today(session)}"
    told = [hook.id for hook in hooks if events.ALARM in hook.events]
    owed: list[Owed] = [(one, events.ALARM, about) for one in told]
    if mailings.are_on(services):
        owed += [(one, events.ALARM_MAIL, about) for one in mailings.officers(services)]
    return owed


def owe_overdue(services: Services, session: Session, request: ErasureRequest) -> None:
    """Store the deliveries of an overdue request, in the transaction of its reminder."""
    model = session.get_one(Model, request.model_id).ref
    told = [
        hook.id
        for hook in endpoints.enabled(services)
        if events.OVERDUE in hook.events and hook.model in (None, model)
    ]
    put(services, session, [(one, events.OVERDUE, str(request.log_index)) for one in told])
