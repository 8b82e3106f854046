"""Health: each part of the service, as in /readyz."""

from fastapi import Request, Response

import lethe
from app.api.http.deps import ServicesDep
from app.console.render import render
from app.console.route import router
from app.console.session import SignedIn
from app.problems import NotReadyError
from app.service import health

routes = router()


@routes.get("/health", operation_id="consoleHealth")
def page(request: Request, services: ServicesDep, visitor: SignedIn) -> Response:
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
