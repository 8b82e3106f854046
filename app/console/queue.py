"""The queue of cases: filters are in the address, a person's identity only in a form's body."""

import io
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Annotated, Any, get_args
from urllib.parse import urlencode

from fastapi import Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import ValidationError
from sqlmodel import col, select

from app.api.http.deps import ServicesDep
from app.api.http.pages import attachment
from app.console.forms import Posted
from app.console.render import render
from app.console.route import router
from app.console.session import Deciding, SignedIn
from app.problems import BadCursorError, NotFoundError
from app.schemas.people import QueueItem, QueueQuery
from app.schemas.requests import State
from app.service.context import Services
from app.service.desk import queue
from lethe.identity import KINDS, digests
from lethe.report.queue import COLUMNS, write_lines
from models import Model

routes = router()
PAGE = 50  # rows
AT_ONCE = 1000  # rows of an export's piece, each of which is made in a thread
MOST_MODELS = 500  # in the list of choices
STATES = (*get_args(State), queue.ANSWERED)
FILTERS = ("state", "model", "overdue", "due_within", "held")
IDENTITY = ("kind", "sha256", "sha1", "md5")

Text = Annotated[str, Query(max_length=200)]


def _given(
    state: Text = "",
    model: Text = "",
    overdue: Text = "",
    due_within: Text = "",
    held: Text = "",
) -> dict[str, str]:
    """Return the filters of an address that are not empty."""
    values = (state, model, overdue, due_within, held)
    return {name: value for name, value in zip(FILTERS, values, strict=True) if value}


Given = Annotated[dict[str, str], Depends(_given)]


@routes.get("", operation_id="consoleQueue")
def page(
    request: Request,
    services: ServicesDep,
    visitor: SignedIn,
    filters: Given,
    after: Text = "",
) -> Response:
    """List open requests and cases by days left, or those that match the filters."""
    found = queue.search(services, _query(filters, after=after or None))
    following = None if found.next is None else urlencode({**filters, "after": found.next})
    return render(
        request,
        "queue.html",
        items=found.items,
        chosen=filters,
        following=following,
        export=urlencode(filters),
        **choices(services),
    )


@routes.get("/queue.{form}", operation_id="consoleQueueExport")
def export(form: str, services: ServicesDep, visitor: SignedIn, filters: Given) -> Response:
    """Download all pages of the queue as CSV or JSON."""
    return _file(form, _pages(services, _query(filters, limit=AT_ONCE)))


@routes.get("/search", operation_id="consoleSearchPage")
def search_page(request: Request, services: ServicesDep, visitor: Deciding) -> Response:
    """Ask for the person or requester to search for."""
    return render(request, "search.html", **_nothing(), **choices(services))


@routes.post("/search", operation_id="consoleSearch")
def search(
    request: Request, services: ServicesDep, visitor: Deciding, form: Posted
) -> Response:
    """List the requests of a person or a requester, neither of which is ever in an address.

    The entered value is hashed here and not kept; further pages carry the digests.
    """
    filters = {name: form[name] for name in (*FILTERS, "requester") if form.get(name)}
    person = identity(form)
    more: dict[str, Any] = {} if person is None else {"person": person}
    if (wanted := form.get("as")) in ("csv", "json"):
        return _file(wanted, _pages(services, _query(filters, limit=AT_ONCE, **more)))
    found = queue.search(services, _query(filters, after=form.get("after") or None, **more))
    values = {**_nothing(), "items": found.items, "chosen": filters, "following": found.next}
    return render(request, "search.html", **values | {"person": person}, **choices(services))


def _nothing() -> dict[str, Any]:
    return {"items": None, "chosen": {}, "person": None, "following": None}


def choices(services: Services) -> dict[str, Any]:
    """Return the choices in forms."""
    with services.reading() as session:
        refs = session.exec(select(Model.ref).order_by(col(Model.ref)).limit(MOST_MODELS))
        return {"models": list(refs), "states": STATES, "kinds": KINDS}


def identity(form: Mapping[str, str]) -> dict[str, str] | None:
    """Return the identity that a form names, by its digests.

    Raises IdentityError if the kind or the value is invalid.
    """
    if form.get("value"):
        kind = form.get("kind", "")
        found = digests(kind, form["value"])
        return {"kind": kind, **{name: one.hex() for name, one in found.items()}}
    person = {name: form[name] for name in IDENTITY if form.get(name)}
    return person if len(person) > 1 else None


def _query(filters: Mapping[str, str], **more: Any) -> QueueQuery:
    """Return a query. Raises BadCursorError if a filter is invalid."""
    try:
        return QueueQuery.model_validate({"limit": PAGE, **filters, **more})
    except ValidationError:
        raise BadCursorError(
            "a filter is not as the page writes it: start without it"
        ) from None


def _pages(services: Services, query: QueueQuery) -> Iterator[QueueItem]:
    while True:
        found = queue.search(services, query)
        yield from found.items
        if found.next is None:
            return
        query = query.model_copy(update={"after": found.next})


def _file(form: str, items: Iterator[QueueItem]) -> Response:
    """Return a download. The first page is read now, so a wrong filter gets an error page."""
    writers = {"csv": (_csv, "text/csv; charset=utf-8"), "json": (_json, "application/json")}
    if form not in writers:
        raise NotFoundError("the queue is exported as csv or json")
    write, kind = writers[form]
    first = next(items, None)
    rows = items if first is None else chain((first,), items)
    return StreamingResponse(write(rows), media_type=kind, headers=attachment(f"cases.{form}"))


def _csv(items: Iterator[QueueItem]) -> Iterator[str]:
    yield ",".join(COLUMNS) + "\n"
    while part := list(islice(items, AT_ONCE)):
        lines = io.StringIO()
        write_lines(lines, (item.model_dump(mode="json") for item in part))
        yield lines.getvalue()


def _json(items: Iterator[QueueItem]) -> Iterator[str]:
    between = "[\n"
    while part := list(islice(items, AT_ONCE)):
        yield between + ",\n".join(item.model_dump_json() for item in part)
        between = ",\n"
    yield "[]\n" if between.startswith("[") else "\n]\n"
