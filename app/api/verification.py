"""/verify: the page that checks a certificate in the browser, without sending it anywhere."""

from fastapi import APIRouter, Request, Response

from app.api.http.deps import ServicesDep
from app.problems import NotFoundError
from app.service.issued import certificates
from lethe.web import page

router = APIRouter(include_in_schema=False)

_HEADERS = {
    "content-security-policy": page.POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


@router.get("/verify", operation_id="getVerificationPage")
def verification_page(request: Request, services: ServicesDep) -> Response:
    """Return the page with this service's public keys filled in."""
    base = f"{request.scope.get('root_path', '')}/verify"
    text = page.served(
        certificates.required_vkeys(services),
        certificates.issuer_pem(services).strip(),
        base,
        certificates.trust_root_if_needed(services),
    )
    return Response(text, media_type="text/html; charset=utf-8", headers=_HEADERS)


@router.get("/verify/{name}", operation_id="getVerificationFile")
def verification_file(name: str) -> Response:
    """Return a module of the page or its style sheet.

    Raises NotFoundError if there is no such file.
    """
    try:
        text = page.asset(name)
    except KeyError:
        raise NotFoundError("the verification page has no such file") from None
    kind = "text/css" if name == page.STYLE else "text/javascript"
    return Response(text, media_type=f"{kind}; charset=utf-8", headers=_HEADERS)
