"""/v1/requests/{id}/certificate/html and /pdf: a certificate as a document for people."""

from base64 import b64encode
from hashlib import sha256
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from app.api.http.deps import ServicesDep
from app.api.http.parsing import DocumentsDep
from app.api.http.strict import StrictRoute
from app.service.issued import documents
from lethe.report.certificate import style
from lethe.words.texts import Language, accepted

router = APIRouter(prefix="/v1/requests", tags=["requests"], route_class=StrictRoute)
HTML, PDF = "text/html; charset=utf-8", "application/pdf"

Wanted = Annotated[
    Language | None, Query(description="Default: the first of Accept-Language that there is.")
]


@router.get("/{request_id}/certificate/html", operation_id="getCertificatePage")
async def page(
    request_id: str,
    request: Request,
    services: ServicesDep,
    turns: DocumentsDep,
    language: Wanted = None,
) -> Response:
    """Read the certificate as a page in plain words, with a technical annex."""
    chosen = _language(request, language)
    made = await turns.parse(lambda: documents.html(services, request_id, chosen))
    return _document(made, HTML, {"content-security-policy": page_policy()})


def page_policy() -> str:
    """Return the content security policy of a page, whose style sheet is inline."""
    digest = b64encode(sha256(style().encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )


@router.get("/{request_id}/certificate/pdf", operation_id="getCertificatePdf")
async def pdf(
    request_id: str,
    request: Request,
    services: ServicesDep,
    turns: DocumentsDep,
    language: Wanted = None,
) -> Response:
    """Download the certificate as PDF/A-3 with the certificate's file attached."""
    chosen = _language(request, language)
    made = await turns.parse(lambda: documents.pdf(services, request_id, chosen))
    return _document(made, PDF, {"content-disposition": 'inline; filename="certificate.pdf"'})


def _language(request: Request, wanted: Language | None) -> Language:
    return wanted or accepted(request.headers.get("accept-language"))


def _document(made: bytes, media_type: str, headers: dict[str, str]) -> Response:
    own = {
        "cache-control": "no-store",
        "vary": "accept-language",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",  # the address is the requester's secret
    }
    return Response(made, media_type=media_type, headers=own | headers)
