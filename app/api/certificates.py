"""/v1/certificates: the numbered verdict on an uploaded bundle, and the keys to pin."""

from typing import Annotated

from fastapi import APIRouter, File, Response, UploadFile

from app.api.deps import ServicesDep
from app.schemas.certificates import StepView, VerdictView
from app.service import certificates

router = APIRouter(prefix="/v1/certificates", tags=["certificates"])


@router.post("/verify", operation_id="verifyCertificate")
def verify(
    services: ServicesDep,
    bundle: Annotated[UploadFile, File()],
    evidence: Annotated[UploadFile | None, File()] = None,
    model: Annotated[UploadFile | None, File()] = None,
) -> VerdictView:
    """Verify a certificate with this service's keys; offline, `lethe certificate verify`."""
    verdict = certificates.verify(
        services,
        bundle.file.read(),
        evidence.file.read() if evidence else None,
        model.file.read() if model else None,
    )
    return VerdictView(
        result=verdict.result,
        steps=[StepView.model_validate(step, from_attributes=True) for step in verdict.steps],
    )


@router.get("/issuer", operation_id="getIssuerKey")
def issuer(services: ServicesDep) -> Response:
    """Return the issuer's public key. Pin it: a key fetched each time proves nothing."""
    return Response(certificates.issuer_pem(services), media_type="application/x-pem-file")
