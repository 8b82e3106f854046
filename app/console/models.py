"""Models: the list, and one with its versions, their metrics and the erasures between them."""

from typing import Annotated

from fastapi import Query, Request, Response

from app.api.http.deps import ServicesDep
from app.console import plots
from app.console.render import render
from app.console.route import router
from app.console.session import SignedIn
from app.service.models import registry
from app.service.paging import parse_number

routes = router()
PAGE = 50  # rows
After = Annotated[str, Query(max_length=400)]


@routes.get("/models", operation_id="consoleModels")
def page(
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
        found = registry.lineage(services, session, ref, number, PAGE)
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
