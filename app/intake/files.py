"""The pages' style sheet and script."""

from importlib.resources import files

from fastapi import Response

from app.intake.route import router
from app.problems import NotFoundError

routes = router()
STATIC = {"intake.css": "text/css", "intake.mjs": "text/javascript"}


@routes.get("/static/{name}", operation_id="intakeStatic")
def static(name: str) -> Response:
    """Return a file of the pages. Raises NotFoundError if there is no such file."""
    if name not in STATIC:
        raise NotFoundError("the page has no such file")
    data = (files("app.intake") / "static" / name).read_bytes()
    headers = {"cache-control": "no-cache"}
    return Response(data, media_type=f"{STATIC[name]}; charset=utf-8", headers=headers)
