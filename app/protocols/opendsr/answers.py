"""OpenDSR's answers: signed JSON, errors included."""

import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError

from app.api.http import problems
from app.counters import REFUSED
from app.problems import NotFoundError
from app.protocols.opendsr.processor import Processor
from lethe.errors import LetheError

JSON = "application/json"
# Errors "MUST respond with HTTP status code 400" (section 7.5), except HTTP's own.
OF_HTTP = (401, 403, 404)


def signed(processor: Processor, status: int, document: dict[str, Any]) -> Response:
    """Return an answer with the processor's signature over its body."""
    body = json.dumps(document).encode()
    headers = {"cache-control": "no-store", **processor.headers(body)}
    return Response(body, status, headers=headers, media_type=JSON)


def refusal(processor: Processor, error: LetheError) -> Response:
    """Return one of our errors as OpenDSR's (section 7.6)."""
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
    """Return pydantic's errors as OpenDSR's; it names fields and repeats no value."""
    found = json.loads(bytes(problems.invalid(errors).body))["errors"]
    named = [("Malformed", f"{one['place']}: {one['problem']}") for one in found]
    return signed(processor, 400, _error(400, named))


def _error(status: int, named: Sequence[tuple[str, str]]) -> dict[str, Any]:
    errors = [
        {"domain": "Validation" if status == 400 else "Request", "reason": why, "message": text}
        for why, text in named
    ]
    return {"error": {"code": status, "message": named[0][1], "errors": errors}}


class DsrRoute(APIRoute):
    """A route whose errors are OpenDSR's; without a configured processor it is off."""

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
