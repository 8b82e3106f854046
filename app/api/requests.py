"""/v1/requests: submit, follow, withdraw, list, and the certificate at the end."""

import hashlib
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from app.api.http.deps import (
    SIGNATURE,
    After,
    Limit,
    Operator,
    OperatorOrAuditor,
    ServicesDep,
    SignedByRequester,
    SignedCall,
    Withdrawer,
    get_services,
    signed_submission,
)
from app.api.http.immutable import immutable, unkept
from app.api.http.parsing import get_parsing
from app.api.http.strict import BareRoute, StrictRoute
from app.ledger.cose_receipt import MEDIA_TYPE as RECEIPT
from app.notices.callbacks.check import check
from app.schemas.base import Page
from app.schemas.requests import (
    Accepted,
    Decision,
    NewRequest,
    Preview,
    RequestSummary,
    RequestView,
    State,
)
from app.service import acceptance, decisions, listing, requests
from app.service.access.roles import DECIDING
from app.service.admission import Submission
from app.service.desk import decisions as desk
from app.service.issued import certificates, receipts
from lethe.catalogue import Method
from lethe.certificates.bundle import MEDIA_TYPE as BUNDLE
from models import BearerToken

router = APIRouter(prefix="/v1/requests", tags=["requests"], route_class=StrictRoute)


BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/NewRequest"}}
        },
    }
}


def _wanted(body: bytes) -> NewRequest:
    """Parse a signed body; unsigned ones are never parsed."""
    try:
        return NewRequest.model_validate_json(body)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_input=False)) from None


async def submit(request: Request) -> Response:
    """Accept a signed erasure request; the answer carries the log's receipt."""
    services = get_services(request)
    async with signed_submission(request, services) as signed:
        wanted = await get_parsing(request).parse_body(signed.body, _wanted)
        digest = hashlib.sha256(signed.body).hexdigest()
        submission = Submission(signed.by, signed.key, wanted, digest, signed.idempotency_key)
        if wanted.callback is not None and not await acceptance.is_repeated(
            services, submission
        ):
            await check(services, signed.by.keyid, wanted.callback)
        accepted = await acceptance.submit(services, submission)
    headers = {"location": f"/v1/requests/{accepted.id}"}
    return Response(accepted.model_dump_json(), 202, headers, "application/json")


router.add_api_route(
    "",
    submit,
    methods=["POST"],
    status_code=202,
    response_model=Accepted,
    dependencies=[Security(SIGNATURE)],
    operation_id="submitRequest",
    openapi_extra=BODY,
    route_class_override=BareRoute,
)


@router.post("/preview", operation_id="previewRequest", openapi_extra=BODY)
def preview(signed: SignedByRequester, services: ServicesDep) -> Preview:
    """Say what a request would erase, and whether its method can suffice; nothing is stored."""
    return acceptance.preview(services, signed.by, _wanted(signed.body))


@router.get("", operation_id="listRequests")
def list_requests(
    services: ServicesDep,
    token: Annotated[BearerToken, OperatorOrAuditor],
    state: State | None = None,
    model: str | None = None,
    method: Method | None = None,
    ref: str | None = None,
    overdue: bool | None = None,
    since: Annotated[datetime | None, Query(description="received at or after")] = None,
    until: Annotated[datetime | None, Query(description="received before")] = None,
    after: After = None,
    limit: Limit = 100,
) -> Page[RequestSummary]:
    """List requests, oldest first; ids are not for auditors. An unknown filter is an error."""
    wanted = listing.Filter(state, model, method, ref, overdue, since, until)
    capabilities = token.scope in DECIDING
    return listing.list_requests(services, wanted, after, limit, capabilities=capabilities)


@router.get("/{request_id}", operation_id="getRequest")
def get_request(request_id: str, services: ServicesDep) -> RequestView:
    """Show a request to whoever holds its id."""
    return requests.view(services, request_id)


@router.delete("/{request_id}", operation_id="withdrawRequest")
def withdraw(request_id: str, by: Withdrawer, services: ServicesDep) -> RequestView:
    """Withdraw a request that no worker has started; signed with the same key.

    A request that was submitted for a person is withdrawn with the token that submitted it.
    """
    if isinstance(by, SignedCall):
        return requests.withdraw(services, by.by, request_id)
    return desk.withdraw(services, request_id, by.name)


@router.post("/{request_id}/decision", operation_id="decideRequest")
def decide(
    request_id: str,
    wanted: Decision,
    services: ServicesDep,
    token: Annotated[BearerToken, Operator],
) -> RequestView:
    """Decide on a request that needs it, as `reason` says; the log names the token."""
    return decisions.decide(services, request_id, wanted, token.name)


@router.get("/{request_id}/certificate", operation_id="getCertificate")
def get_certificate(request_id: str, request: Request, services: ServicesDep) -> Response:
    """Download the certificate: a Sigstore bundle, the same bytes for ever."""
    return immutable(request, certificates.bundle(services, request_id), BUNDLE)


@router.get("/{request_id}/certificate/receipt", operation_id="getCertificateReceipt")
def get_receipt(request_id: str, request: Request, services: ServicesDep) -> Response:
    """Download the COSE receipt (RFC 9942) of the certificate's log entry, for SCITT."""
    return immutable(request, receipts.of_request(services, request_id), RECEIPT)


@router.get("/{request_id}/evidence", operation_id="getEvidence")
def get_evidence(request_id: str, services: ServicesDep) -> Response:
    """Download the evidence that the certificate names by digest."""
    return unkept(certificates.evidence(services, request_id), "application/json")
