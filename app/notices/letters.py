"""The text of mail: to the person of a case, and to officers.

A person's address is not in the delivery. It is opened from the case as an officer opens it, so
the log has an entry of each time that it was used; and a case whose parts or address are not
those that were logged gets no mail.
"""

import tomllib
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from importlib.resources import files
from typing import Any

from sqlalchemy import func
from sqlmodel import Session, col, select

from app.notices import events, mailings
from app.notices.mail import Message, is_address
from app.notices.notice import NoNoticeError
from app.problems import NotFoundError
from app.schemas.base import format_time
from app.schemas.people import CaseView, QueueQuery
from app.service.context import Services
from app.service.deadlines import REMIND_DAYS
from app.service.desk import cases, queue
from models import Case, Delivery
from models.database.clock import clock

BY = "lethe: notice"  # in the log's entry of an opened contact, where an officer's name is
LISTED = 20  # requests of each kind in a digest
LANGUAGES = ("en", "de", "fr")
VERIFY = "/verify"


@cache
def words(language: str) -> Mapping[str, Mapping[str, str]]:
    """Return the texts of a language, by section and name."""
    source = files("app.notices") / "words" / f"{language}.toml"
    return tomllib.loads(source.read_text(encoding="utf-8"))


def write(services: Services, delivery: Delivery) -> Message:
    """Return the message of a delivery.

    Raises:
        NoNoticeError: There is nothing to say, or nobody to say it to.
        LetheError: The case is not as it was logged.
    """
    if delivery.receiver == events.PERSON:
        return _to_person(services, delivery.event, delivery.about)
    to = mailings.officers(services).get(delivery.receiver)
    if to is None:
        raise NoNoticeError("not an officer now")
    if delivery.event == events.ALARM_MAIL:
        alarm, _, day = delivery.about.rpartition("@")
        known = _section(services, "alarm")
        meaning = known["log-entry" if alarm.startswith("log-entry") else alarm]
        return _message(services, to, "alarm", alarm=alarm, day=day, meaning=meaning)
    return _digest(services, to, delivery.about)


def _to_person(services: Services, event: str, about: str) -> Message:
    ref, _, index = about.partition("/")
    with services.reading() as session:
        case = session.get(Case, ref)
        if case is None or case.contact is None:
            raise NoNoticeError("no contact")
        if not is_address(case.contact):
            raise NoNoticeError("no e-mail address")
    shown = cases.show(services, ref)
    said = _said(services, event, shown, index)
    try:
        to = cases.open_contact(services, ref, BY).contact
    except NotFoundError:  # closed meanwhile
        raise NoNoticeError("no contact") from None
    return _message(services, to, event.removeprefix("mail."), **said)


def _said(services: Services, event: str, shown: CaseView, index: str) -> dict[str, object]:
    said: dict[str, object] = {
        "case": shown.ref,
        "received": format_time(shown.received_at)[:10],
        "due": format_time(shown.due_at)[:10],
    }
    if event == events.RECEIVED_MAIL:
        if shown.state != "open":
            raise NoNoticeError("answered")
        return said
    if event == events.EXTENDED_MAIL:
        for item in shown.timeline:
            if str(item.log_index) == index and item.event == "request.extended":
                due = item.detail["due_at"][:10]
                return {**said, **_why(services, item.detail), "due": due}
        raise NoNoticeError("not as logged")
    last = max(
        (item.log_index for item in shown.timeline if item.event in mailings.ENDS), default=0
    )
    if shown.state == "open" or index not in ("0", str(last)):
        raise NoNoticeError("not the last part")  # the entry that ends the case is told
    public = services.settings.public_url.rstrip("/")
    return {**said, "parts": _parts(services, shown), "verify": f"{public}{VERIFY}"}


def _parts(services: Services, shown: CaseView) -> str:
    known = _section(services, "answered")
    lines = []
    for part in shown.parts:
        own = [item for item in shown.timeline if item.model == part.model]
        ends = [item for item in own if item.event in mailings.ENDS]
        detail = ends[-1].detail if ends else {}
        values: dict[str, Any] = {
            "model": part.model,
            "index": ends[-1].log_index if ends else part.log_index,
            **_why(services, detail),
        }
        lines.append(known[part.outcome].format(**values).strip())
    return "\n".join(lines)


def _why(services: Services, detail: Mapping[str, str]) -> dict[str, str]:
    none = _section(services, "answered")["no_reason"]
    return {"reason": detail.get("reason", none), "notice": detail.get("notice", "")}


def _digest(services: Services, to: str, day: str) -> Message:
    known = _section(services, "digest")
    found: list[str] = []
    total = 0
    for name, query in (
        ("overdue", QueueQuery(overdue=True, limit=1000)),
        ("soon", QueueQuery(overdue=False, due_within=REMIND_DAYS[0], limit=1000)),
        ("review", QueueQuery(state="awaiting-review", limit=1000)),
        ("decision", QueueQuery(state="needs-decision", limit=1000)),
    ):
        page = queue.search(services, query)
        items = [one for one in page.items if one.model is not None]
        if not items:
            continue
        count = f"{len(items)}{'+' if page.next else ''}"
        found.append(known[name].format(n=count, days=REMIND_DAYS[0]))
        for one in items[:LISTED]:
            due = format_time(one.due_at)[:10]
            found.append(known["item"].format(ref=one.ref, state=one.state, due=due))
        if len(items) > LISTED:
            found.append(known["more"].format(n=len(items) - LISTED))
        total += len(items)
    with services.reading() as session:
        if undelivered := _failed(session):
            found.append(known["undelivered"].format(n=undelivered))
    if not found:
        raise NoNoticeError("nothing to say")
    return _message(services, to, "digest", n=total, day=day, lines="\n".join(found))


def _failed(session: Session) -> int:
    since = clock(session) - timedelta(days=1)
    query = select(func.count(col(Delivery.id))).where(
        Delivery.state == events.FAILED,
        col(Delivery.ended_at) > since,
        col(Delivery.receiver).startswith("wh_"),
    )
    return session.exec(query).one()


def _section(services: Services, name: str) -> Mapping[str, str]:
    return words(services.settings.notice_language)[name]


def _message(services: Services, to: str, section: str, /, **values: object) -> Message:
    known = _section(services, section)
    text = known["text"].format(**values).strip() + "\n"
    return Message(to, known["subject"].format(**values), text)
