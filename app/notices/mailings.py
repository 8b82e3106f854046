"""The mail that is owed to people of cases and to officers."""

import hmac
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlmodel import Session, col, select

from app.ledger.entry_macs import EntryRow
from app.notices import events, mail
from app.notices.notice import LABEL, delivery_id
from app.notices.writing import put, write
from app.reconcile.case_parts import FOLLOWING
from app.service.context import Services
from app.service.deadlines import zone_of
from app.service.parts import ERASING
from models import Case, Delivery, ErasureRequest
from models.database.types import clock

# May end the last part of a case; whether one did is checked when the mail is written.
ENDS = ("request.certified", "request.refused", "request.withdrawn")
DIGEST_HOUR = 6  # of the time zone in which deadlines are counted
AT_ONCE = 500  # cases that are read at once, to find those of new entries


def are_on(services: Services) -> bool:
    """Return whether mail is sent at all."""
    return mail.is_configured(services.settings)


def officers(services: Services) -> dict[str, str]:
    """Return the addresses of officers by their receiver ids in deliveries."""
    assert services.ledger.entry_key is not None
    key = services.ledger.entry_key.derive(LABEL)
    return {
        events.OFFICER + hmac.digest(key, b"officer\0" + one.encode(), "sha256").hex()[:24]: one
        for one in services.settings.officers
    }


def owe_digest(services: Services) -> None:
    """Store the digest of this day for each officer, once, from DIGEST_HOUR on."""
    if not (are_on(services) and services.settings.officers):
        return
    with services.reading() as session:
        local = clock(session).astimezone(zone_of(services.settings))
        if local.hour < DIGEST_HOUR:
            return
        day = local.date().isoformat()
        wanted = [(one, events.DIGEST_MAIL, day) for one in officers(services)]
        ids = [delivery_id(services, *one) for one in wanted]
        known = select(Delivery.id).where(col(Delivery.id).in_(ids))
        if len(session.exec(known).all()) == len(ids):
            return
    write(services, lambda session: put(services, session, wanted))


def owed(
    services: Services, session: Session, entries: Sequence[EntryRow]
) -> list[tuple[str, str, str]]:
    """Return (receiver, event, about) of mail that entries owe to people of cases."""
    found = [(events.PERSON, event, about) for event, about in _of_cases(session, entries)]
    refs = {str(one.ref) for one in entries if one.event in (*ENDS, "request.extended")}
    cases = {
        ref: case
        for ref, case in session.exec(
            select(ErasureRequest.ref, ErasureRequest.case_ref).where(
                col(ErasureRequest.ref).in_(refs), col(ErasureRequest.case_ref).is_not(None)
            )
        ).all()
    }
    for one in entries:
        if (case := cases.get(str(one.ref))) is None:
            continue
        if one.event == "request.extended":
            found.append((events.PERSON, events.EXTENDED_MAIL, f"{case}/{one.index}"))
        elif one.event in ENDS:
            found.append((events.PERSON, events.ANSWERED_MAIL, f"{case}/{one.index}"))
    return found


def _of_cases(session: Session, entries: Sequence[EntryRow]) -> list[tuple[str, str]]:
    """Return the mail owed by cases that these entries opened: once for all parts of a case."""
    wanted = {one.index: one.day for one in entries if one.event == "case.opened"}
    if not wanted:
        return []
    found = []
    for ref, parts, has_contact in _opened(session, min(wanted.values()), max(wanted.values())):
        indexes = {part["log_index"] for part in parts}
        if wanted.keys().isdisjoint(indexes):
            continue
        for index in indexes:
            wanted.pop(index, None)
        if has_contact:
            found.append((events.RECEIVED_MAIL, ref))
            # Nothing to wait for.
            if all(part["found"] not in (ERASING, FOLLOWING) for part in parts):
                found.append((events.ANSWERED_MAIL, f"{ref}/0"))
        if not wanted:
            break
    return found


def _opened(
    session: Session, first: str, last: str
) -> Iterator[tuple[str, list[dict[str, Any]], bool]]:
    """Yield (ref, parts, has a contact) of the cases of these days, the newest first.

    All of them: after an outage of the sender, its next entries are not of the newest cases.
    """
    day = timedelta(days=1)  # an entry's day is its case's, in UTC; a day more on each side
    until, ref = datetime.fromisoformat(last).replace(tzinfo=UTC) + 2 * day, ""
    at, name = col(Case.received_at), col(Case.ref)
    since = at >= datetime.fromisoformat(first).replace(tzinfo=UTC) - day
    while True:
        page = session.exec(
            select(at, name, col(Case.parts), col(Case.contact).is_not(None))
            .where(since, (at < until) | ((at == until) & (name < ref)))
            .order_by(at.desc(), name.desc())
            .limit(AT_ONCE)
        ).all()
        yield from ((one[1], one[2], one[3]) for one in page)
        if len(page) < AT_ONCE:
            return
        until, ref = page[-1][:2]
