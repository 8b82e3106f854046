"""All pages of the console, in the order in which addresses are matched."""

from fastapi import APIRouter, Response

from app.console import cases, certificates, holds, opening, overview, queue
from app.console.route import router as pages
from app.console.sign_in import entrance, oidc
from app.problems import NotFoundError

anything_else = pages()


@anything_else.get("/{rest:path}", operation_id="consoleNowhere")
def nowhere(rest: str) -> Response:
    """Answer any other address with an error page. Always raises NotFoundError."""
    raise NotFoundError("the console has no such page")


router = APIRouter()
router.include_router(entrance.home)
for part in (entrance, oidc, opening, queue, cases, certificates, holds, overview):
    router.include_router(part.routes)
router.include_router(anything_else)
