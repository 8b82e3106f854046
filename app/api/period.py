"""/v1/reports/period: requests of a period for a regulator, counted from the log."""

from datetime import date
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from app.api.http.deps import OperatorOrAuditor, ServicesDep
from app.api.http.immutable import unkept
from app.api.http.parsing import ParsingDep
from app.api.http.strict import StrictRoute
from app.service.issued import period
from lethe import canonical
from lethe.report.period import as_csv
from lethe.report.period_page import period_html, period_pdf
from lethe.words.texts import Language, Texts, accepted, texts

router = APIRouter(prefix="/v1/reports", tags=["log"], route_class=StrictRoute)
Form = Literal["json", "csv", "html", "pdf"]
TYPES: dict[Form, str] = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "pdf": "application/pdf",
}


@router.get("/period", operation_id="getPeriodReport", dependencies=[OperatorOrAuditor])
async def get_period_report(
    request: Request,
    services: ServicesDep,
    turns: ParsingDep,
    first: Annotated[date, Query(alias="from")],
    last: Annotated[date, Query(alias="to")],
    form: Annotated[Form, Query(alias="format")] = "json",
    language: Annotated[Language | None, Query()] = None,
) -> Response:
    """Count the requests of the days `from` to `to`, with proofs that no entry is left out."""
    chosen = texts(language or accepted(request.headers.get("accept-language")))

    def make() -> bytes:
        return rendered(period.report(services, first, last), form, chosen)

    return unkept(await turns.parse(make), TYPES[form])


def rendered(data: bytes, form: Form, chosen: Texts) -> bytes:
    """Return a report (JSON) in another format. Raises as `lethe.report.pdf.pdf`."""
    if form == "json":
        return data
    if form == "pdf":
        return period_pdf(data, chosen)
    report = canonical.decode(data)
    made = as_csv(report) if form == "csv" else period_html(report, chosen)
    return made.encode()
