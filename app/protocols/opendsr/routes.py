"""/dsr: OpenDSR 2.0. Tokens of scope `agent` call it; a token's name is the controller's id.

The specification describes these routes, and OpenAPI does not.
"""

from base64 import b64encode
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from app.api.http.deps import ServicesDep, bearer
from app.problems import CallbackTargetError, NotFoundError, OpenDsrError
from app.protocols.cases import (
    AgentRequest,
    check_urls,
    follow,
    open_all,
    show_all,
    withdraw_all,
)
from app.protocols.opendsr.answers import DsrRoute, signed
from app.protocols.opendsr.processor import Processor
from app.protocols.opendsr.wire import (
    ERASURE,
    FORMS,
    PROTOCOL,
    UUID4,
    NewDsrRequest,
    due_of,
    people_of,
    status_of,
    times_of,
)
from app.schemas.base import format_time
from app.schemas.people import CaseView
from models import BearerToken
from models.database.types import utcnow

VERSION = "2.0"
router = APIRouter(prefix="/dsr", route_class=DsrRoute, include_in_schema=False)
Agent = Annotated[BearerToken, Depends(bearer("agent"))]


async def read_body(request: Request) -> bytes:
    """Read the body, which the answer repeats in base64."""
    return await request.body()


def get_processor(request: Request) -> Processor:
    """Return the signer of answers; `DsrRoute` checked that there is one."""
    processor: Processor = request.app.state.opendsr
    return processor


Body = Annotated[bytes, Depends(read_body)]
ProcessorDep = Annotated[Processor, Depends(get_processor)]


@router.get("/discovery")
def discover(request: Request, processor: ProcessorDep, services: ServicesDep) -> Response:
    """List what is supported (section 6)."""
    base = services.settings.public_url.rstrip("/") or str(request.base_url).rstrip("/")
    return signed(
        processor,
        200,
        {
            "api_version": VERSION,
            "supported_identities": [
                {"identity_type": name, "identity_format": form}
                for name in processor.kinds
                for form in FORMS
            ],
            "supported_subject_request_types": [ERASURE],
            "processor_certificate": f"{base}/dsr/certificate",
        },
    )


@router.get("/certificate")
def certificate(processor: ProcessorDep) -> Response:
    """Return the certificate, with its chain, under which answers are signed."""
    return Response(processor.certificate, media_type="application/x-pem-file")


@router.post("/requests")
def create(
    body: Body, processor: ProcessorDep, services: ServicesDep, agent: Agent
) -> Response:
    """Open a case for each identity (section 7). Sent again, it changes nothing."""
    wanted = NewDsrRequest.model_validate_json(body)
    if wanted.subject_request_type != ERASURE:
        raise OpenDsrError(
            "subject_request_type: only erasure is supported, see /discovery",
            reason="UnsupportedRequestType",
        )
    if processor.domain in wanted.extensions:
        raise OpenDsrError("extensions: this processor has none", reason="UnsupportedExtension")
    asked = AgentRequest(PROTOCOL, agent.name, wanted.subject_request_id)
    people = people_of(wanted, processor.kinds)
    ticket = (
        f"{PROTOCOL} {wanted.subject_request_id} of {agent.name}, "
        f"submitted {format_time(wanted.submitted_time)}"
    )
    try:
        check_urls(services, asked, wanted.status_callback_urls)
    except CallbackTargetError as error:
        text = f"status_callback_urls: {error.detail}"
        raise OpenDsrError(text, reason="InvalidCallback") from None
    views = open_all(services, asked, people, wanted.regulation, ticket)
    follow(services, asked, wanted.status_callback_urls)
    encoded = {"encoded_request": b64encode(body).decode()}
    return signed(processor, 201, _named(asked) | times_of(views) | encoded)


@router.get("/requests/{request_id}")
def status(
    request_id: str, processor: ProcessorDep, services: ServicesDep, agent: Agent
) -> Response:
    """Return the status of a controller's own request (section 8)."""
    asked = _asked(agent, request_id)
    return signed(processor, 200, _named(asked) | _status(show_all(services, asked)))


@router.delete("/requests/{request_id}")
def cancel(
    request_id: str, processor: ProcessorDep, services: ServicesDep, agent: Agent
) -> Response:
    """Withdraw a request while it is pending (section 9)."""
    asked = _asked(agent, request_id)
    withdraw_all(services, asked)
    received = {"received_time": format_time(utcnow()), "api_version": VERSION}
    return signed(processor, 202, _named(asked) | received)


def _asked(agent: BearerToken, request_id: str) -> AgentRequest:
    if UUID4.fullmatch(request_id) is None:
        raise NotFoundError("you have made no request of this id")
    return AgentRequest(PROTOCOL, agent.name, request_id)


def _named(asked: AgentRequest) -> dict[str, Any]:
    return {"controller_id": asked.agent, "subject_request_id": asked.request}


def _status(views: list[CaseView]) -> dict[str, Any]:
    return {
        "expected_completion_time": format_time(due_of(views)),
        "request_status": status_of(views),
        "api_version": VERSION,
    }
