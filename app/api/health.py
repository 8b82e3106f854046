"""Liveness, readiness, and metrics for Prometheus."""

from typing import Annotated

from fastapi import APIRouter, Header, Response, Security

from app import metrics
from app.api.http.deps import BEARER, ServicesDep
from app.service import health
from app.service.access import keys
from app.service.access.roles import ROLES

router = APIRouter(tags=["health"])


@router.get("/healthz", operation_id="healthz")
async def healthz() -> dict[str, str]:
    """Say that the process answers: on the event loop, so also when every thread is busy."""
    return {"status": "ok"}


@router.get("/readyz", operation_id="readyz")
def readyz(services: ServicesDep) -> dict[str, str]:
    """Say that database, broker and log can take a request; 503 names what cannot."""
    return health.ready(services)


@router.get("/metrics", operation_id="getMetrics", response_class=Response)
def get_metrics(
    services: ServicesDep,
    _: Annotated[None, Security(BEARER)],
    authorization: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Response:
    """Return Prometheus's text format: the whole service, and this process.

    An auditor's token is enough; none is needed if LETHE_METRICS_ACCESS is open.
    """
    if services.settings.metrics_access == "token":
        with services.reading() as session:
            keys.authorise(session, authorization, ROLES)
    return Response(metrics.whole_service(services), media_type=metrics.MEDIA_TYPE)
