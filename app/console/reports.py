"""The report of a period for a regulator: a page to choose it, and the API's download."""

from calendar import monthrange
from datetime import date, datetime
from typing import Annotated

from fastapi import Query, Request, Response

from app.api.http.deps import ServicesDep
from app.api.http.parsing import ParsingDep
from app.api.period import TYPES, Form, rendered
from app.console.render import language_of, render
from app.console.route import router
from app.console.session import SignedIn
from app.service.deadlines import zone_of
from app.service.issued import period
from lethe.words.texts import texts

routes = router()


@routes.get("/reports", operation_id="consoleReports")
def page(request: Request, services: ServicesDep, visitor: SignedIn) -> Response:
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
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(await turns.parse(make), media_type=TYPES[form], headers=headers)


def last_month(today: date) -> tuple[date, date]:
    """Return the first and the last day of the month before that of `today`."""
    year, month = (today.year, today.month - 1) if today.month > 1 else (today.year - 1, 12)
    return date(year, month, 1), date(year, month, monthrange(year, month)[1])
