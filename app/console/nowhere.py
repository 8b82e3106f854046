"""What is no page of the console gets a page that says so."""

from fastapi import Response

from app.console.route import router
from app.problems import NotFoundError

routes = router()


@routes.get("/{rest:path}", operation_id="consoleNowhere")
def nowhere(rest: str) -> Response:
    """Answer any other address.

    Raises:
        NotFoundError: Always.
    """
    raise NotFoundError("the console has no such page")
