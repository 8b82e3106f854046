"""OpenDSR's answers: signed JSON, also of errors, and the status of a request."""

import json
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError

from app.api.http import problems
from app.counters import REFUSED
from app.problems import NotFoundError
from app.protocols.cases import is_left_at_source, is_waiting, outcomes
from app.protocols.opendsr.processor import Processor
from app.schemas.base import format_time
from app.schemas.people import CaseView
from lethe.errors import LetheError

JSON = "application/json"
# Errors "MUST respond with HTTP status code 400" (section 7.5), but for those of HTTP itself.
OF_HTTP = (401, 403, 404)


def signed(processor: Processor, status: int, document: dict[str, Any]) -> Response:
    """Return an answer with the processor's signature over its body."""
    body = json.dumps(document).encode()
    headers = {"cache-control": "no-store", **processor.headers(body)}
    return Response(body, status, headers=headers, media_type=JSON)


def refusal(processor: Processor, error: LetheError) -> Response:
    """Return OpenDSR's error (section 7.6) of an error of ours."""
    REFUSED.add(error.slug)
    own = error.status in OF_HTTP or error.status >= 500
    status = error.status if own else 400
    reason = str(error.members.get("reason") or error.slug)
    response = signed(processor, status, _error(status, [(reason, error.detail)]))
    if status == 401:
        response.headers["www-authenticate"] = "Bearer"
    if error.retry_after is not None or status == 503:
        response.headers["retry-after"] = str(error.retry_after or problems.RETRY_AFTER_S)
    return response


def malformed(processor: Processor, errors: Sequence[Any]) -> Response:
    """Return OpenDSR's error of what pydantic found; it names fields and repeats no value."""
    found = json.loads(bytes(problems.invalid(errors).body))["errors"]
    named = [("Malformed", f"{one['place']}: {one['problem']}") for one in found]
    return signed(processor, 400, _error(400, named))


def _error(status: int, named: Sequence[tuple[str, str]]) -> dict[str, Any]:
    errors = [
        {"domain": "Validation" if status == 400 else "Request", "reason": why, "message": text}
        for why, text in named
    ]
    return {"error": {"code": status, "message": named[0][1], "errors": errors}}


def status_of(views: Sequence[CaseView]) -> str:
    """Return a request's status (section 8).

    Refused is cancelled, as are rows that only their source can delete: no other word is true.
    """
    found = outcomes(views)
    if found & {"in progress", "failed"}:  # an operator still has to decide on what failed
        return "pending" if is_waiting(views) and "failed" not in found else "in_progress"
    if found & {"refused", "withdrawn"} or is_left_at_source(views):
        return "cancelled"
    return "completed"


def due_of(views: Sequence[CaseView]) -> datetime:
    """Return until when the last of the cases is to be completed."""
    return max(view.due_at for view in views)


def times_of(views: Sequence[CaseView]) -> dict[str, str]:
    """Return when a request was received, and when it is expected to be completed."""
    return {
        "expected_completion_time": format_time(due_of(views)),
        "received_time": format_time(min(view.received_at for view in views)),
    }


class DsrRoute(APIRoute):
    """A route whose errors are OpenDSR's; without a configured processor there is none."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            processor: Processor | None = request.app.state.opendsr
            if processor is None:
                return problems.answer(NotFoundError("OpenDSR is not configured here"))
            try:
                return await handle(request)
            except LetheError as error:
                return refusal(processor, error)
            except (RequestValidationError, ValidationError) as error:
                return malformed(processor, error.errors())

        return handled
