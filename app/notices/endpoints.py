"""Endpoints of webhooks: add, list, rotate, disable, enable, remove.

Writing the table must not be enough to redirect notices. So each row has a MAC, and a change
makes a new row and lists the old one as revoked (`app.ledger.key_rows`): an older target, an
older secret or a removed endpoint cannot be restored. A row of a later generation is shown and
used only once the row before it is listed, whoever was killed in between.
"""

import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from sqlalchemy import delete
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select

from app.ledger.key_rows import believed, key_rows
from app.notices import post
from app.notices.signatures import Kind, is_in_use, new_secret
from app.notices.writing import write
from app.problems import ConflictError, NotFoundError
from app.service.context import Services
from models import Webhook
from models.database.types import clock

MOST = 100
OVERLAP = timedelta(hours=24)  # both secrets sign after a rotation
BY_OPERATOR, GONE = "by an operator", "410 Gone"


def add(
    services: Services,
    url: str,
    events: Sequence[str],
    model: str | None,
    kind: Kind,
    operator: str,
) -> Webhook:
    """Store an endpoint with a fresh secret.

    Raises TargetError: it may not be called; ConflictError: there are MOST already.
    """
    post.check(services.settings.webhook_allowed, url)
    made = Webhook(
        row="",
        id=f"wh_{uuid.uuid4().hex[:24]}",
        generation=0,
        url=url,
        events=sorted(set(events)),
        model=model,
        secrets=[new_secret(kind)],
        created_by=operator,
    )

    def effect(session: Session) -> Webhook:
        if len(current(session)) >= MOST:
            raise ConflictError(f"there are {MOST} webhooks already: remove one")
        made.created_at = clock(session)
        return _store(session, made)

    return write(services, effect)


def current(session: Session) -> list[Webhook]:
    """Return the newest row of each endpoint, of the rows that this installation wrote."""
    names = session.exec(select(Webhook.row)).all()
    rows = [believed(session, Webhook, name) for name in names]
    newest: dict[str, Webhook] = {}
    for row in sorted((one for one in rows if one is not None), key=lambda one: one.generation):
        newest[row.id] = row
    for row in newest.values():
        _list_previous(session, row)
    return sorted(newest.values(), key=lambda one: (one.created_at, one.id))


def find(session: Session, webhook: str) -> Webhook:
    """Return an endpoint. Raises NotFoundError if this installation wrote none of this id."""
    names = session.exec(select(Webhook.row).where(Webhook.id == webhook)).all()
    rows = [believed(session, Webhook, name) for name in names]
    found = max((one for one in rows if one), key=lambda one: one.generation, default=None)
    if found is None:
        raise NotFoundError("no webhook has this id: see `lethe webhook list`")
    _list_previous(session, found)
    return found


def are_outdated(session: Session) -> bool:
    """Return whether a row that this session sees is listed as replaced or removed.

    If it was replaced, a new session sees the row in its place: a change is committed before
    it is listed.
    """
    names = session.exec(select(Webhook.row)).all()
    return any(believed(session, Webhook, name) is None for name in names)


def enabled(services: Services) -> list[Webhook]:
    """Return the endpoints that are not disabled, from a snapshot, for a writer.

    A writer on PostgreSQL sees what others commit between its statements, so it may read the
    row of an endpoint that has been replaced since it read the names.
    """
    for last in (False, True):
        with services.reading() as session:
            found = [one for one in current(session) if one.disabled is None]
            if last or not are_outdated(session):
                return found
    raise AssertionError


def rotate(services: Services, webhook: str) -> Webhook:
    """Give an endpoint a fresh secret; the previous one also signs, for OVERLAP."""

    def change(row: Webhook, now: datetime) -> None:
        until = (now + OVERLAP).isoformat()
        kept = [one for one in row.secrets if is_in_use(one, now)][:1]
        fresh = new_secret(row.secrets[0]["kind"])
        row.secrets = [fresh, *({**one, "until": until} for one in kept)]

    return _change(services, webhook, change)


def disable(services: Services, webhook: str, why: str = BY_OPERATOR) -> Webhook:
    """Disable an endpoint; deliveries that wait for it fail, and can be replayed."""

    def change(row: Webhook, _now: datetime) -> None:
        row.disabled = row.disabled or why

    return _change(services, webhook, change)


def enable(services: Services, webhook: str) -> Webhook:
    """Enable an endpoint again, for events from now on."""

    def change(row: Webhook, _now: datetime) -> None:
        row.disabled = None

    return _change(services, webhook, change)


def remove(services: Services, webhook: str) -> Webhook:
    """Delete an endpoint and its secrets; return it.

    Raises NotFoundError: there is none; ConflictError: another process changed it meanwhile.
    """

    def effect(session: Session) -> Webhook:
        row = find(session, webhook)
        _delete(session, row)
        # Before the commit: after a crash, the removal can be repeated.
        key_rows(session).revoke(row)
        return row

    return write(services, effect)


def _change(
    services: Services, webhook: str, change: Callable[[Webhook, datetime], None]
) -> Webhook:
    """Replace an endpoint's row by a changed one, and list the old one as revoked.

    The list is written after the commit: in the other order, a failed commit would lose the
    endpoint. If the process is killed before, whoever reads the new row lists the old one.

    Raises NotFoundError: there is none; ConflictError: another process changed it meanwhile.
    """

    def effect(session: Session) -> Webhook:
        row = find(session, webhook)
        fields = row.model_dump()
        _delete(session, row)
        changed = Webhook(**{**fields, "generation": row.generation + 1})
        change(changed, clock(session))
        return _store(session, changed)

    try:
        made = write(services, effect)
    except IntegrityError:
        raise ConflictError("the webhook was changed meanwhile: try again") from None
    with services.reading() as session:
        _list_previous(session, made)
    return made


def _delete(session: Session, row: Webhook) -> None:
    """Delete a row that was read; what another process made of it would stay, or be replaced.

    On PostgreSQL this waits for that process. Raises ConflictError: the row is gone.
    """
    session.expunge(row)
    gone = delete(Webhook).where(col(Webhook.row) == row.row)
    if session.connection().execute(gone).rowcount != 1:
        raise ConflictError("the webhook was changed or removed meanwhile: try again")


def _list_previous(session: Session, row: Webhook) -> None:
    """List the row that `row` replaced as revoked; a change found all earlier ones listed."""
    if row.generation > 0:
        key_rows(session).ban(Webhook, _name(row.id, row.generation - 1))


def _name(webhook: str, generation: int) -> str:
    return f"{webhook}.{generation}"


def _store(session: Session, row: Webhook) -> Webhook:
    row.row = _name(row.id, row.generation)
    key_rows(session).seal(row)
    session.add(row)
    session.flush()
    return row
