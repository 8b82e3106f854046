"""All routes of the page, and its style sheet and script."""

from importlib.resources import files

from fastapi import APIRouter, Response

from app.intake import asking, following
from app.intake.route import router as pages
from app.problems import NotFoundError

STATIC = {"intake.css": "text/css", "intake.mjs": "text/javascript"}
statics = pages()


@statics.get("/static/{name}", operation_id="intakeStatic")
def static(name: str) -> Response:
    """Return a file of the pages. Raises NotFoundError if there is no such file."""
    if name not in STATIC:
        raise NotFoundError("the page has no such file")
    data = (files("app.intake") / "static" / name).read_bytes()
    headers = {"cache-control": "no-cache"}
    return Response(data, media_type=f"{STATIC[name]}; charset=utf-8", headers=headers)


router = APIRouter()
for routes in (asking.routes, following.routes, statics):
    router.include_router(routes)
