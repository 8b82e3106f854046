"""/v1/certificates: the verdict on an uploaded bundle, and the issuer's key; /v1/scores."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Request, Response

from app.api.http.deps import OperatorOrAuditor, ServicesDep
from app.api.http.forms import describe_form, read_form
from app.api.http.immutable import unkept
from app.api.http.parsing import VerificationsDep
from app.schemas.base import Wire
from app.service.issued import certificates
from lethe.certificates.evidence import SCORES_TYPE

router = APIRouter()


class StepView(Wire):
    """One numbered step of the verification."""

    number: int
    name: str
    checked: bool
    passed: bool
    detail: str


class VerdictView(Wire):
    """PASS only if every step passed."""

    result: Literal["PASS", "FAIL"]
    steps: list[StepView]


async def get_files(request: Request, services: ServicesDep) -> dict[str, bytes]:
    """Read the files to verify."""
    return await read_form(
        request,
        required=("bundle",),
        optional=("evidence", "model"),
        field_bytes=services.settings.max_body_bytes,
    )


@router.post(
    "/v1/certificates/verify",
    tags=["certificates"],
    operation_id="verifyCertificate",
    openapi_extra=describe_form(
        optional=("evidence", "model"),
        bundle="the certificate",
        evidence="the file it names by digest",
        model="the model it names by digest",
    ),
)
async def verify(
    services: ServicesDep,
    turns: VerificationsDep,
    files: Annotated[dict[str, bytes], Depends(get_files)],
) -> VerdictView:
    """Verify a certificate with this service's keys; offline, `lethe certificate verify`."""
    verdict = await turns.parse(
        lambda: certificates.verify(
            services, files["bundle"], files.get("evidence"), files.get("model")
        )
    )
    return VerdictView(
        result=verdict.result,
        steps=[StepView.model_validate(step, from_attributes=True) for step in verdict.steps],
    )


@router.get("/v1/certificates/issuer", tags=["certificates"], operation_id="getIssuerKey")
def issuer(services: ServicesDep) -> Response:
    """Return the issuer's public key. Pin it: a key fetched each time proves nothing."""
    return Response(certificates.issuer_pem(services), media_type="application/x-pem-file")


Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]


@router.get(
    "/v1/scores/{digest}",
    tags=["requests"],
    operation_id="getScores",
    dependencies=[OperatorOrAuditor],
)
def get_scores(digest: Digest, services: ServicesDep) -> Response:
    """Download the scores that a certificate names by digest."""
    return unkept(certificates.scores(services, digest), SCORES_TYPE)
