"""Legal holds: the list, and the forms that place and release a hold."""

from typing import Annotated

from fastapi import Query, Request, Response

from app.api.http.deps import ServicesDep
from app.console.actions import valid
from app.console.forms import Posted
from app.console.render import redirect, render
from app.console.route import router
from app.console.session import Deciding
from app.schemas.people import NewHold
from app.service import holds

routes = router()
PAGE = 50  # rows
HOLDS = "/console/holds"


@routes.get("/holds", operation_id="consoleHolds")
def page(
    request: Request,
    services: ServicesDep,
    visitor: Deciding,
    after: Annotated[str, Query(max_length=400)] = "",
) -> Response:
    """List the unreleased holds."""
    with services.reading() as session:
        found = holds.page(session, after or None, PAGE, released=False)
    return render(request, "holds.html", items=found.items, following=found.next)


@routes.get("/holds/place", operation_id="consoleHoldPlacePage")
def place_page(
    request: Request, visitor: Deciding, ref: Annotated[str, Query(max_length=80)] = ""
) -> Response:
    """Ask for the reference to hold, and the reason."""
    return render(request, "hold.html", ref=ref, hold=None)


@routes.post("/holds/place", operation_id="consoleHoldPlace")
def place(request: Request, services: ServicesDep, visitor: Deciding, form: Posted) -> Response:
    """Place a hold; the log names the visitor."""
    ref = valid(NewHold, ref=form.get("ref", ""), reason="-").ref
    reason = valid(NewHold, reason=form.get("reason", ""), ref=ref).reason
    holds.place(services, NewHold(ref=ref, reason=reason), visitor.name)
    return redirect(request, HOLDS)


@routes.get("/holds/{hold}/release", operation_id="consoleHoldReleasePage")
def release_page(
    hold: str, request: Request, services: ServicesDep, visitor: Deciding
) -> Response:
    """Ask for confirmation of a release."""
    with services.reading() as session:
        found = holds.find(session, hold)
    return render(request, "hold.html", ref=found.target, hold=found)


@routes.post("/holds/{hold}/release", operation_id="consoleHoldRelease")
def release(
    hold: str, request: Request, services: ServicesDep, visitor: Deciding, _: Posted
) -> Response:
    """Release a hold that somebody else placed."""
    holds.release(services, hold, visitor.name)
    return redirect(request, HOLDS)
