"""Send due notices: take a lease, send without a database connection, record the answer.

The lease of a killed sender expires; the next one sends again under the same webhook-id, by
which receivers detect duplicates. Retries follow the schedule of Standard
Webhooks ("Retry schedule"), 410 disables an endpoint, and a redirect is a failure.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import ColumnElement, and_, delete, func, update
from sqlmodel import Session, col, or_, select

from app import traces
from app.notices import endpoints, events, letters, mail, post
from app.notices.callbacks import rows as callbacks
from app.notices.callbacks.form import OWN, CallbackMessage, Form, OverError
from app.notices.guard import TargetError
from app.notices.notice import NoNoticeError, compose, is_authentic
from app.notices.signatures import sign
from app.notices.writing import write
from app.problems import NotFoundError
from app.service.context import Services
from lethe.errors import LetheError
from models import Callback, Delivery
from models.database.session import CHUNK
from models.database.types import clock

log = logging.getLogger(__name__)

# Seconds after each failure: ten attempts in three days and a half.
SCHEDULE = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
LEASE_S = 60  # longer than an attempt: `post.WHOLE_S`, `mail.WHOLE_S`
AT_ONCE, EACH = 200, 25  # receivers in a run, and deliveries for each
SHARE_S = 15.0  # one receiver's share of a run: no attempt begins after it
THREADS = 8


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an attempt. state: None to try again, after `wait` seconds at least."""

    answer: str
    state: str | None
    wait: int = 0
    reached: bool = True  # the receiver answered: the next notice for it can be tried now
    reported: str | None = None  # of a callback: the state in the message
    final: bool = False  # of a callback: no other state follows


def run(services: Services, forms: Mapping[str, Form] | None = None) -> int:
    """Attempt due deliveries, a share for each receiver; return the number of attempts.

    forms: by kind of callback. If given, callbacks are sent, otherwise webhooks and mail.
    """
    with services.reading() as session:
        due = due_by_receiver(session) if forms is None else _due_callbacks(session)
    if not due:
        return 0
    with ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(lambda ids: _in_turn(services, ids, forms or OWN), due))


def _due_callbacks(session: Session) -> list[list[str]]:
    """Return the due callbacks of each owner, so that an owner of many starves no other."""
    is_due = _is_due(clock(session))
    lane, first = col(Delivery.lane), func.min(col(Delivery.next_at))
    query = select(Delivery.lane).where(is_due, lane.is_not(None)).group_by(lane)
    lanes = session.exec(query.order_by(first).limit(AT_ONCE)).all()
    mine = select(Delivery.id).where(is_due).order_by(col(Delivery.next_at)).limit(EACH)
    return [list(session.exec(mine.where(Delivery.lane == one))) for one in lanes]


def due_by_receiver(session: Session) -> list[list[str]]:
    """Return the due deliveries of each receiver: mail first, and alarms first within each.

    Receivers are chosen before deliveries, so that a receiver of many starves no other.
    """
    is_due = and_(_is_due(clock(session)), col(Delivery.lane).is_(None))
    receiver = col(Delivery.receiver)
    is_mail = or_(receiver == events.PERSON, receiver.startswith(events.OFFICER))
    receivers = session.exec(
        select(Delivery.receiver)
        .where(is_due)
        .group_by(receiver)
        .order_by(is_mail.desc(), func.min(col(Delivery.next_at)))
        .limit(AT_ONCE)
    ).all()
    is_alarm = col(Delivery.event) == events.ALARM
    return [
        list(
            session.exec(
                select(Delivery.id)
                .where(is_due, Delivery.receiver == one)
                .order_by(is_alarm.desc(), col(Delivery.next_at))
                .limit(EACH)
            )
        )
        for one in receivers
    ]


def _is_due(now: datetime) -> ColumnElement[bool]:
    free = or_(col(Delivery.lease_until).is_(None), col(Delivery.lease_until) < now)
    return and_(col(Delivery.state) == events.WAITING, col(Delivery.next_at) <= now, free)


def _in_turn(services: Services, deliveries: list[str], forms: Mapping[str, Form]) -> int:
    made, began = 0, time.monotonic()
    for delivery in deliveries:
        if time.monotonic() - began > SHARE_S:  # a slow receiver must not hold up the others
            break
        outcome = attempt(services, delivery, forms)
        if outcome is None:
            continue
        made += 1
        if not outcome.reached:  # its other notices wait for the next run
            break
    return made


def attempt(
    services: Services, delivery: str, forms: Mapping[str, Form] = OWN
) -> Outcome | None:
    """Attempt a delivery, unless another sender has leased it; return the outcome."""
    taken = write(services, lambda session: _take(session, delivery))
    if taken is None:
        return None
    with traces.part("notice attempt", "client", links=()) as span:
        span.set("lethe.notice.event", taken.event)
        outcome = _outcome(services, taken, forms)
        span.set("lethe.notice.state", outcome.state or events.WAITING)
        if outcome.state != events.DELIVERED:
            span.fail("not delivered")  # the answer may name a host
    write(services, lambda session: _record(session, taken, outcome))
    if outcome.answer == "410" and not _is_callback(taken):
        endpoints.disable(services, taken.receiver, endpoints.GONE)
    return outcome


def _take(session: Session, delivery: str) -> Delivery | None:
    """Lease a due delivery and count the attempt; one that no sender outlived is ended.

    A sender that dies records nothing. Without the count here, a notice that kills its sender
    would be sent after each lease, without end.
    """
    now = clock(session)
    mine = col(Delivery.id) == delivery, _is_due(now)
    row = session.exec(select(Delivery).where(*mine)).first()
    if row is None:
        return None
    if row.attempts > len(SCHEDULE):
        _record(session, row, Outcome("sender died", events.FAILED))
        return None
    wait = next(iter(SCHEDULE[row.attempts :]), 0)
    taken = session.connection().execute(
        update(Delivery)
        .where(*mine, col(Delivery.lease_token) == row.lease_token)
        .values(
            attempts=row.attempts + 1,
            lease_until=now + timedelta(seconds=LEASE_S),
            lease_token=row.lease_token + 1,
            next_at=now + timedelta(seconds=wait),
        )
    )
    if taken.rowcount != 1:
        return None
    session.refresh(row)
    return row


def _record(session: Session, taken: Delivery, outcome: Outcome) -> None:
    now, attempts = clock(session), taken.attempts
    state = outcome.state
    if state is None and attempts > len(SCHEDULE):
        state = events.FAILED
    wait = 0 if state else max(SCHEDULE[attempts - 1], outcome.wait)
    again = now + timedelta(seconds=wait)
    recorded = session.connection().execute(
        update(Delivery)
        .where(col(Delivery.id) == taken.id, col(Delivery.lease_token) == taken.lease_token)
        .values(
            state=state or events.WAITING,
            next_at=again,
            lease_until=None,
            answer=outcome.answer[:40],
            ended_at=now if state else None,
        )
    )
    if recorded.rowcount != 1:
        return
    if not outcome.reached:
        _postpone(session, taken.receiver, again)
    if _is_callback(taken):
        delivered = outcome.reported if state == events.DELIVERED else None
        # A message that could never be built is given up, and its address must not stay.
        over = outcome.final or (state == events.FAILED and outcome.reported is None)
        callbacks.note(session, taken.receiver, delivered, ended=over and state is not None)


def _postpone(session: Session, receiver: str, until: datetime) -> None:
    """Postpone all deliveries for a receiver that was not reached to the next attempt."""
    session.connection().execute(
        update(Delivery)
        .where(
            col(Delivery.receiver) == receiver,
            col(Delivery.state) == events.WAITING,
            col(Delivery.next_at) < until,
        )
        .values(next_at=until)
    )


def _outcome(services: Services, taken: Delivery, forms: Mapping[str, Form]) -> Outcome:
    """Send a delivery. An unexpected error ends this attempt only, and its type is logged."""
    try:
        if not is_authentic(services, taken):
            log.warning("a row of deliveries was not written here and is not sent")
            return Outcome("not written here", events.DROPPED)
        if taken.receiver == events.PERSON or taken.receiver.startswith(events.OFFICER):
            mail.send(services.settings, letters.write(services, taken))
            return Outcome("accepted", events.DELIVERED)
        if _is_callback(taken):
            return _call_back(services, taken, forms)
        return _post(services, taken)
    except OverError as error:
        return Outcome(str(error), events.DROPPED, final=True)
    except NoNoticeError as error:
        return Outcome(str(error), events.DROPPED)
    except TargetError:
        return Outcome("target refused", None, reached=False)
    except post.UnreachableError as error:
        return Outcome(str(error), None, reached=False)
    except mail.MailError as error:
        return Outcome("mail refused", events.FAILED if error.permanent else None)
    except LetheError as error:
        return Outcome(error.slug, None)
    except Exception as error:  # whatever a driver raises: the next notice must be sent
        log.error("a notice was not sent (%s)", type(error).__name__)
        return Outcome(type(error).__name__, None)


def _post(services: Services, taken: Delivery, *, again: bool = True) -> Outcome:
    """Post a notice. again: look once more for an endpoint that was changed meanwhile."""
    with services.reading() as session:
        try:
            hook = endpoints.find(session, taken.receiver)
        except NotFoundError:
            if not (again and endpoints.are_outdated(session)):
                raise NoNoticeError("webhook removed") from None
            hook = None
    if hook is None:
        return _post(services, taken, again=False)
    with services.reading() as session:
        if hook.disabled is not None:
            return Outcome("webhook disabled", events.FAILED)
        if taken.event not in (*hook.events, events.TEST):
            raise NoNoticeError("not subscribed")
        notice = compose(services, session, taken.event, taken.about)
        now = clock(session)
    if hook.model is not None and notice.model not in (None, hook.model):
        raise NoNoticeError("not subscribed")
    body, stamp = notice.body, int(now.timestamp())
    headers = {
        "webhook-id": taken.id,
        "webhook-timestamp": str(stamp),
        "webhook-signature": sign(hook.secrets, now, taken.id, stamp, body),
    }
    return _answered(post.post(services.settings.webhook_allowed, hook.url, headers, body))


def _is_callback(delivery: Delivery) -> bool:
    return delivery.event in (events.STATE, events.STATUS)  # authenticated by its id


def _answered(answer: post.Answer) -> Outcome:
    if 200 <= answer.status < 300:
        return Outcome(str(answer.status), events.DELIVERED)
    if answer.status == 410:
        return Outcome("410", events.FAILED)
    return Outcome(str(answer.status), None, answer.retry_after)


def _call_back(services: Services, taken: Delivery, forms: Mapping[str, Form]) -> Outcome:
    """Report the state of a request, unless a newer one has overtaken it."""
    with services.reading() as session:
        try:
            callback = callbacks.find(services, session, taken.receiver)
        except NotFoundError:
            raise NoNoticeError("callback over") from None
        if callbacks.is_overtaken(session, taken):
            raise NoNoticeError("overtaken")
        now = clock(session)
    message = forms[callback.kind](services, callback, taken, now)
    if message.state == callback.delivered_state:
        return Outcome("already delivered", events.DROPPED, final=message.final)
    try:
        sent = _answered(_post_to(services, callback, message))
    except TargetError:
        sent = Outcome("target refused", None, reached=False)
    except post.UnreachableError as error:
        sent = Outcome(str(error), None, reached=False)
    # 410: the receiver wants no more, and the address is deleted.
    final = message.final or sent.answer == "410"
    return replace(sent, reported=message.state, final=final)


def _post_to(services: Services, callback: Callback, message: CallbackMessage) -> post.Answer:
    allowed = services.settings.callback_allowed
    return post.post(allowed, callback.url, message.headers, message.body)


def forget(services: Services, kept: timedelta, now: datetime) -> None:
    """Delete all deliveries that ended longer ago than `kept`, a page in each transaction."""
    old = select(Delivery.id).where(col(Delivery.ended_at) < now - kept).limit(CHUNK)
    while True:
        with services.reading() as session:
            ids = session.exec(old).all()
        if not ids:
            return
        write(services, partial(_delete, ids))


def _delete(ids: Sequence[str], session: Session) -> None:
    session.connection().execute(delete(Delivery).where(col(Delivery.id).in_(ids)))
