"""/v1/audits: audits of unlearning algorithms by retraining and unlearning in pairs."""

from fastapi import APIRouter, Request, Response

from app.api.http.deps import After, Limit, Operator, OperatorOrAuditor, ServicesDep
from app.api.http.immutable import immutable, unkept
from app.api.http.strict import StrictRoute
from app.method_audits import audits, views
from app.schemas.audits import AuditView, NewAudit
from app.schemas.base import Page

router = APIRouter(prefix="/v1/audits", tags=["audits"], route_class=StrictRoute)
JSON = "application/json"


@router.post("", status_code=201, operation_id="startAudit", dependencies=[Operator])
def start(wanted: NewAudit, services: ServicesDep, response: Response) -> AuditView:
    """Start an audit of a network's method; workers compute its pairs."""
    shown = audits.start(services, wanted)
    response.headers["location"] = f"/v1/audits/{shown.id}"
    return shown


@router.get("", operation_id="listAudits", dependencies=[OperatorOrAuditor])
def list_audits(
    services: ServicesDep, after: After = None, limit: Limit = 100
) -> Page[AuditView]:
    """List audits, including failed and stopped ones, and those that the database lacks."""
    return views.page(services, after, limit)


@router.get("/{audit_id}", operation_id="getAudit", dependencies=[OperatorOrAuditor])
def get_audit(audit_id: str, services: ServicesDep) -> AuditView:
    """Show one audit."""
    return views.get(services, audit_id)


@router.post("/{audit_id}/stop", operation_id="stopAudit", dependencies=[Operator])
def stop(audit_id: str, services: ServicesDep) -> AuditView:
    """Stop a running audit, and its schedule."""
    return audits.stop(services, audit_id)


@router.get("/{audit_id}/report", operation_id="getReport", dependencies=[OperatorOrAuditor])
def get_report(audit_id: str, request: Request, services: ServicesDep) -> Response:
    """Download the signed report; `lethe audit verify` checks it offline."""
    return immutable(request, views.report(services, audit_id), JSON)


@router.get(
    "/{audit_id}/statistics", operation_id="getStatistics", dependencies=[OperatorOrAuditor]
)
def get_statistics(audit_id: str, services: ServicesDep) -> Response:
    """Download the numbers that the report was computed from, until they are destroyed."""
    return unkept(audits.statistics(services, audit_id), JSON)
