"""All routes of the page, and its style sheet and script."""

from fastapi import APIRouter, Response

from app.api.http.pages import static_file
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
    return static_file("app.intake", name, f"{STATIC[name]}; charset=utf-8")


router = APIRouter()
for routes in (asking.routes, following.routes, statics):
    router.include_router(routes)
