"""Method audits: measurements of unlearning methods over many pairs of models."""

from typing import Annotated

from fastapi import Query, Request, Response

from app.api.http.deps import ServicesDep
from app.console.render import render
from app.console.route import router
from app.console.session import SignedIn
from app.method_audits import views

routes = router()
PAGE = 50  # rows


@routes.get("/audits", operation_id="consoleAudits")
def page(
    request: Request,
    services: ServicesDep,
    visitor: SignedIn,
    after: Annotated[str, Query(max_length=400)] = "",
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
def report(audit_id: str, services: ServicesDep, visitor: SignedIn) -> Response:
    """Download the signed report."""
    headers = {"content-disposition": 'attachment; filename="audit.dsse.json"'}
    data = views.report(services, audit_id)
    return Response(data, media_type="application/json", headers=headers)
