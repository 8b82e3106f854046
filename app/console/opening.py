"""Open a case: an officer asks for a person's erasure on their behalf."""

from fastapi import Request, Response

from app.api.http.deps import ServicesDep
from app.console.actions import valid
from app.console.forms import Posted
from app.console.queue import choices, identity
from app.console.render import redirect, render
from app.console.route import router
from app.console.session import Deciding
from app.problems import BadFieldError
from app.schemas.people import NewCase
from app.service.desk import opening
from lethe.catalogue import REFUSALS

routes = router()


@routes.get("/open", operation_id="consoleOpenPage")
def page(request: Request, services: ServicesDep, visitor: Deciding) -> Response:
    """Ask whose records are to be erased, and how the identity was checked."""
    return render(request, "open.html", regulations=list(REFUSALS), **choices(services))


@routes.post("/open", operation_id="consoleOpen")
def open_case(
    request: Request, services: ServicesDep, visitor: Deciding, form: Posted
) -> Response:
    """Submit requests for all records of a person; somebody else approves them.

    Raises BadFieldError if a field is missing or invalid.
    """
    person = identity(form)
    if person is None:
        raise BadFieldError("give the identity of the person, such as an e-mail address")
    wanted = valid(
        NewCase,
        ticket=form.get("ticket", ""),
        person=person,
        regulation=form.get("regulation", ""),
        models=[form["model"]] if form.get("model") else None,
        checked=form.get("checked") or None,
        contact=form.get("contact") or None,
    )
    shown = opening.open_case(services, wanted, visitor.name)
    return redirect(request, f"/console/cases/{shown.ref}")
