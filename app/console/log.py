"""The log explorer: entries with proofs that the reader's browser checks."""

import json
from base64 import b64decode
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query, Request, Response

from app.api.http.deps import ServicesDep
from app.console.render import render
from app.console.route import router
from app.console.session import SignedIn
from app.problems import NotFoundError
from app.service.issued import public_log
from app.service.paging import parse_number
from lethe.catalogue import EVENTS

routes = router()
PAGE = 50  # rows
Text = Annotated[str, Query(max_length=200)]


@routes.get("/log", operation_id="consoleLog")
def page(
    request: Request,
    services: ServicesDep,
    visitor: SignedIn,
    ref: Text = "",
    event: Text = "",
    first: Text = "",
    after: Text = "",
) -> Response:
    """List entries in the order of the log: the page that begins at `first`, or the last page.

    Filtered pages are linked forward only, by their cursors.
    """
    note = public_log.latest_checkpoint(services)
    size = services.ledger.open(note).size
    chosen = {name: text for name, text in (("ref", ref), ("event", event)) if text}
    begin, earlier = 0, None
    if not chosen:
        begin = parse_number(first) if first else max(0, size - 1) // PAGE * PAGE
        earlier = str(max(0, begin - PAGE)) if begin else None
        after = str(begin - 1) if begin else ""
    found = public_log.entries(
        services, after or None, PAGE, size=size, ref=ref or None, event=event or None
    )
    following = None
    if found.next is not None:
        following = (
            {"first": str(begin + PAGE)} if not chosen else {**chosen, "after": found.next}
        )
    return render(
        request,
        "log.html",
        items=found.items,
        size=size,
        note=note,
        chosen=chosen,
        events=[one.name for one in EVENTS.values()],
        range=found.completeness.range,
        range_note=found.checkpoint,
        vkey=services.ledger.verifier.vkey,
        earlier=earlier,
        following=following and urlencode(following),
    )


@routes.get("/log/{index}", operation_id="consoleLogEntry")
def entry(index: str, request: Request, services: ServicesDep, visitor: SignedIn) -> Response:
    """Show an entry, the proof that it is in the published tree, and the tree's checkpoint."""
    place = parse_number(index)
    note = public_log.latest_checkpoint(services)
    size = services.ledger.open(note).size
    if place >= size:
        raise NotFoundError("the published log has no entry of this index yet")
    proof = public_log.inclusion(services, place, size)
    previous = str(place - 1) if place else None
    (shown,) = public_log.entries(services, previous, 1).items
    leaf = b64decode(shown.leaf)
    return render(
        request,
        "entry.html",
        entry=shown,
        proof=proof,
        note=note,
        vkey=services.ledger.verifier.vkey,
        leaf=json.dumps(json.loads(leaf), indent=2, ensure_ascii=False),
    )
