"""Pages that only show: models, audits, the log with its proofs, reports, and health."""

import json
from base64 import b64decode
from calendar import monthrange
from datetime import date, datetime
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query, Request, Response

import lethe
from app.api.http.deps import ServicesDep
from app.api.http.pages import attachment
from app.api.http.parsing import ParsingDep
from app.api.period import TYPES, Form, rendered
from app.console import plots
from app.console.render import language_of, render
from app.console.route import router
from app.console.session import SignedIn
from app.method_audits import views
from app.problems import NotFoundError, NotReadyError
from app.service import health
from app.service.deadlines import zone_of
from app.service.issued import period, public_log
from app.service.models import registry
from app.service.paging import parse_number
from lethe.catalogue import EVENTS
from lethe.words.texts import texts

routes = router()
PAGE = 50  # rows
After = Annotated[str, Query(max_length=400)]
Text = Annotated[str, Query(max_length=200)]


@routes.get("/models", operation_id="consoleModels")
def models_page(
    request: Request, services: ServicesDep, visitor: SignedIn, after: After = ""
) -> Response:
    """List models by their references."""
    with services.reading() as session:
        found = registry.page(session, after or None, PAGE)
    return render(request, "models.html", items=found.items, following=found.next)


@routes.get("/models/{ref}", operation_id="consoleModel")
def model(
    ref: str, request: Request, services: ServicesDep, visitor: SignedIn, after: After = ""
) -> Response:
    """Show a model, its versions and their metrics on held-out rows."""
    number = parse_number(after) if after else None
    with services.reading() as session:
        shown = registry.show(registry.find(session, ref))
        found = registry.versions(services, session, ref, number, PAGE, lineage=True)
    figures = [(one.number, one.held_out) for one in found.items if one.held_out is not None]
    line = plots.line([(str(number), figure.value or "") for number, figure in figures])
    return render(
        request,
        "model.html",
        model=shown,
        versions=found.items,
        following=found.next,
        line=line,
        metric=next((figure.metric for _, figure in figures if figure.metric), None),
        size=(plots.WIDTH, plots.HEIGHT),
    )


@routes.get("/audits", operation_id="consoleAudits")
def audits_page(
    request: Request, services: ServicesDep, visitor: SignedIn, after: After = ""
) -> Response:
    """List audits, including failed and stopped ones, and those that the database lacks."""
    found = views.page(services, after or None, PAGE)
    return render(request, "audits.html", items=found.items, following=found.next)


@routes.get("/audits/{audit_id}", operation_id="consoleAudit")
def audit(
    audit_id: str, request: Request, services: ServicesDep, visitor: SignedIn
) -> Response:
    """Show one audit."""
    return render(request, "audit.html", audit=views.get(services, audit_id))


@routes.get("/audits/{audit_id}/report", operation_id="consoleAuditReport")
def audit_report(audit_id: str, services: ServicesDep, visitor: SignedIn) -> Response:
    """Download the signed report."""
    data, headers = views.report(services, audit_id), attachment("audit.dsse.json")
    return Response(data, media_type="application/json", headers=headers)


@routes.get("/log", operation_id="consoleLog")
def log_page(
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


@routes.get("/reports", operation_id="consoleReports")
def reports_page(request: Request, services: ServicesDep, visitor: SignedIn) -> Response:
    """Offer a period, by default the last whole month."""
    first, last = last_month(datetime.now(zone_of(services.settings)).date())
    return render(request, "reports.html", first=first, last=last, forms=tuple(TYPES))


@routes.get("/reports/period", operation_id="consoleReport")
async def report(
    request: Request,
    services: ServicesDep,
    turns: ParsingDep,
    visitor: SignedIn,
    first: Annotated[date, Query(alias="from")],
    last: Annotated[date, Query(alias="to")],
    form: Annotated[Form, Query(alias="format")],
) -> Response:
    """Download the report of the days `from` to `to`, in the language of the pages."""
    chosen = texts(language_of(request))

    def make() -> bytes:
        return rendered(period.report(services, first, last), form, chosen)

    name = f"erasure-requests-{first}-{last}.{form}"
    return Response(await turns.parse(make), media_type=TYPES[form], headers=attachment(name))


def last_month(today: date) -> tuple[date, date]:
    """Return the first and the last day of the month before that of `today`."""
    year, month = (today.year, today.month - 1) if today.month > 1 else (today.year - 1, 12)
    return date(year, month, 1), date(year, month, monthrange(year, month)[1])


@routes.get("/health", operation_id="consoleHealth")
def health_page(request: Request, services: ServicesDep, visitor: SignedIn) -> Response:
    """Show which parts work; the service's own log says why one does not."""
    failed: list[str] = []
    parts: dict[str, str] = {}
    try:
        parts = health.ready(services)
    except NotReadyError as error:
        failed = str(error.members["failed"]).split(", ")
    return render(
        request,
        "health.html",
        parts=parts,
        failed=failed,
        refused=parts.pop(health.REFUSED, "0"),
        version=lethe.__version__,
    )
