"""Liveness and readiness."""

from fastapi import APIRouter

from app.api.http.deps import ServicesDep
from app.service import health

router = APIRouter(tags=["health"])


@router.get("/healthz", operation_id="healthz")
async def healthz() -> dict[str, str]:
    """Say that the process answers: on the event loop, so also when every thread is busy."""
    return {"status": "ok"}


@router.get("/readyz", operation_id="readyz")
def readyz(services: ServicesDep) -> dict[str, str]:
    """Say that database, broker and log can take a request; 503 names what cannot."""
    return health.ready(services)
