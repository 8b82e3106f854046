"""The text of mail: to the person of a case, and to officers.

A person's address is not in the delivery. It is opened from the case as an officer opens it, so
the log has an entry for each use; and no mail is sent for a case whose parts or address differ
from the logged ones.
"""

import tomllib
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import cache
from importlib.resources import files

from sqlalchemy import func
from sqlmodel import Session, col, select

from app.notices import events, mailings
from app.notices.mail import Message, is_address
from app.notices.notice import NoNoticeError, opened_events
from app.problems import NotFoundError
from app.reconcile.case_parts import FOLLOWING, Part
from app.schemas.base import format_time
from app.schemas.people import QueueQuery
from app.service.context import Services
from app.service.deadlines import REMIND_DAYS, zone_of
from app.service.desk import cases, queue
from app.service.parts import ENDED, ERASING, load
from lethe.words.reasons import reason_in, remedies_in
from lethe.words.texts import day_in, texts
from models import Case, Delivery, ErasureRequest, RequestEvent
from models.database.types import clock

BY = "lethe: notice"  # in place of an officer's name in the log's entry of an opened contact
LISTED = 20  # requests of each kind in a digest
VERIFY = "/verify"


@cache
def words(language: str) -> Mapping[str, Mapping[str, str]]:
    """Return the texts of a language, by section and name."""
    source = files("app.notices") / "words" / f"{language}.toml"
    return tomllib.loads(source.read_text(encoding="utf-8"))


def write(services: Services, delivery: Delivery) -> Message:
    """Return the message of a delivery.

    Raises NoNoticeError: there is nothing to report, or no recipient; LetheError: the case is
    not as it was logged.
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
        if (stored := session.get(Case, ref)) is None or stored.contact is None:
            raise NoNoticeError("no contact")
        if not is_address(stored.contact):
            raise NoNoticeError("no e-mail address")
        case, parts = load(services, session, ref)
        said = {"case": case.ref, "received": _day(services, case.received_at)}
        said |= _said(services, session, event, case, parts, int(index or 0))
    try:
        to = cases.open_contact(services, ref, BY).contact
    except NotFoundError:  # closed meanwhile
        raise NoNoticeError("no contact") from None
    return _message(services, to, event.removeprefix("mail."), **said)


def _said(
    services: Services,
    session: Session,
    event: str,
    case: Case,
    parts: Sequence[Part],
    index: int,
) -> dict[str, str]:
    """Return a mail's values for a case: its logged parts and its requests' signed entries."""
    opened = [_opened(services, session, part) for part in parts]
    if event == events.EXTENDED_MAIL:
        found = [one[index] for one in opened if index in one]
        if not found or found[0].event != "request.extended":
            raise NoNoticeError("not as logged")
        due = datetime.fromisoformat(str(found[0].payload["due_at"]))
        return _why(services, case, found[0]) | {"due": _day(services, due)}
    ends = [_end(one) for one in opened]
    open_parts = [
        part
        for part, end in zip(parts, ends, strict=True)
        if (part.found == ERASING and end is None)
        # Withdrawn or refused, it is no answer to who follows it.
        or (part.found == FOLLOWING and (end is None or end.event != "request.certified"))
    ]
    if event == events.RECEIVED_MAIL:
        if not open_parts:
            raise NoNoticeError("answered")
        return {"due": _day(services, case.due_at)}
    last = max((end.log_index for end in ends if end is not None), default=0)
    if open_parts or index not in (0, last):
        raise NoNoticeError("not the last part")  # only the case's last entry is reported
    lines = [_line(services, case, part, end) for part, end in zip(parts, ends, strict=True)]
    public = services.settings.public_url.rstrip("/")
    return {"parts": "\n".join(lines), "verify": f"{public}{VERIFY}"}


def _opened(services: Services, session: Session, part: Part) -> dict[int, RequestEvent]:
    request = None if part.request is None else session.get(ErasureRequest, part.request)
    if request is None:
        return {}
    if request.ref != part.request_ref or not request.event_key:
        raise NoNoticeError("not as logged")
    return opened_events(services, session, request)


def _end(opened: Mapping[int, RequestEvent]) -> RequestEvent | None:
    ends = [row for _, row in sorted(opened.items()) if row.event in mailings.ENDS]
    return ends[-1] if ends else None


def _line(services: Services, case: Case, part: Part, end: RequestEvent | None) -> str:
    """Return the line on the outcome of a part."""
    known, values = _section(services, "answered"), {"model": part.model}
    if part.found not in (ERASING, FOLLOWING) or end is None:
        return known[ENDED[part.found]].format(**values)
    name = end.event.removeprefix("request.")
    if name == "certified":
        values |= {
            "index": str(end.payload["certificate"]),
            "result": str(end.payload["result"]),
        }
        name = "certified" if values["result"] == "PASS" else "not_shown"
    elif name == "refused":
        values |= _why(services, case, end)
    return known[name].format(**values).strip()


def _why(services: Services, case: Case, row: RequestEvent) -> dict[str, str]:
    """Return reason and remedies of an officer's decision; a worker's are not shown."""
    if "notice" not in row.payload:
        return {"reason": _section(services, "answered")["no_reason"], "notice": ""}
    language, law = services.settings.notice_language, case.regulation
    reason, notice = str(row.payload["reason"]), str(row.payload["notice"])
    return {
        "reason": reason_in(language, law, reason) or reason,
        "notice": remedies_in(language, law, notice) or notice,
    }


def _digest(services: Services, to: str, day: str) -> Message:
    known = _section(services, "digest")
    states = texts(services.settings.notice_language).sections["state"]
    found: list[str] = []
    total = undelivered = 0
    for name, query in (
        ("overdue", QueueQuery(overdue=True, limit=1000)),
        ("soon", QueueQuery(overdue=False, due_within=REMIND_DAYS[0], limit=1000)),
        ("review", QueueQuery(state="awaiting-review", limit=1000)),
        ("decision", QueueQuery(state="needs-decision", limit=1000)),
    ):
        page = queue.search(services, query)
        items = [one for one in page.items if one.state != queue.ANSWERED]
        if not items:
            continue
        count = f"{len(items)}{'+' if page.next else ''}"
        found.append(known[name].format(n=count, days=REMIND_DAYS[0]))
        for one in items[:LISTED]:
            due = format_time(one.due_at)[:16].replace("T", " ") + " UTC"
            found.append(known["item"].format(ref=one.ref, state=states[one.state], due=due))
        if len(items) > LISTED:
            found.append(known["more"].format(n=len(items) - LISTED))
        total += len(items)
    with services.reading() as session:
        for name, prefix in (("undelivered", "wh_"), ("uncalled", "cb_")):
            failed = _failed(session, prefix)
            if not failed:
                continue
            undelivered += sum(failed.values())
            found.append(known[name].format(n=sum(failed.values())))
            found += [
                known["receiver"].format(id=one, n=n) for one, n in [*failed.items()][:LISTED]
            ]
            if len(failed) > LISTED:
                found.append(known["more"].format(n=len(failed) - LISTED))
    if not found:
        raise NoNoticeError("nothing to say")
    counts = {"attention": total, "failed": undelivered}
    what = "; ".join(known[name].format(n=n) for name, n in counts.items() if n)
    shown = day_in(services.settings.notice_language, date.fromisoformat(day))
    return _message(services, to, "digest", what=what, day=shown, lines="\n".join(found))


def _failed(session: Session, prefix: str) -> dict[str, int]:
    """Return how many deliveries failed in the last day, by the id of their receiver.

    prefix: of the ids of webhooks or of callbacks.
    """
    since, receiver = clock(session) - timedelta(days=1), col(Delivery.receiver)
    query = (
        select(receiver, func.count(col(Delivery.id)))
        .where(
            Delivery.state == events.FAILED,
            col(Delivery.ended_at) > since,
            receiver.startswith(prefix, autoescape=True),
        )
        .group_by(receiver)
        .order_by(receiver)
    )
    return dict(session.exec(query).all())


def _day(services: Services, at: datetime) -> str:
    """Return a day of the calendar in which deadlines are counted, as the intake page does."""
    local = at.astimezone(zone_of(services.settings))
    return day_in(services.settings.notice_language, local.date())


def _section(services: Services, name: str) -> Mapping[str, str]:
    return words(services.settings.notice_language)[name]


def _message(services: Services, to: str, section: str, /, **values: object) -> Message:
    known = _section(services, section)
    text = known["text"].format(**values).strip() + "\n"
    return Message(to, known["subject"].format(**values), text)
