"""/v1/models: register, contribute, list versions, download artifacts."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from app.api.deps import (
    MAX_NUMBER,
    After,
    Limit,
    Operator,
    OperatorOrAuditor,
    ServicesDep,
    Signed,
)
from app.api.forms import describe_form, read_form
from app.api.immutable import revalidated
from app.api.uploads import parse_upload
from app.schemas.base import Page
from app.schemas.models import ContributionView, ModelView, NewModel, VersionView
from app.service import registry
from app.service.listing import parse_number

router = APIRouter(prefix="/v1/models", tags=["models"])
SAFETENSORS = "application/octet-stream"
Number = Annotated[int, Path(ge=1, le=MAX_NUMBER)]


@dataclass(frozen=True, slots=True)
class Registration:
    """The two parts of a registration, unread."""

    manifest: bytes
    data: bytes


async def get_registration(
    request: Request, services: ServicesDep, _: Annotated[object, Operator]
) -> Registration:
    """Read the form of an operator; of others it is not even read."""
    limit = services.settings.max_body_bytes
    parts = await read_form(request, required=("manifest", "data"), field_bytes=limit)
    return Registration(parts["manifest"], parts["data"])


@router.post(
    "",
    status_code=201,
    operation_id="registerModel",
    openapi_extra=describe_form(
        manifest="JSON: see NewModel", data=".npz with features, labels, clients"
    ),
)
def register(
    services: ServicesDep,
    response: Response,
    sent: Annotated[Registration, Depends(get_registration)],
) -> ModelView:
    """Register a ridge head over frozen features; a worker fits it and it becomes ready."""
    try:
        wanted = NewModel.model_validate_json(sent.manifest)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_input=False)) from None
    upload = parse_upload(
        sent.data,
        dimension=len(wanted.exponents),
        classes=len(wanted.classes),
        bits=wanted.bits,
        max_bytes=services.settings.max_upload_bytes,
    )
    shown = registry.register(services, wanted, upload)
    response.headers["location"] = f"/v1/models/{shown.ref}"
    return shown


@router.get("", operation_id="listModels", dependencies=[OperatorOrAuditor])
def list_models(
    services: ServicesDep, after: After = None, limit: Limit = 100
) -> Page[ModelView]:
    """List models by reference."""
    with services.reading() as session:
        return registry.page(session, after, limit)


@router.get("/{ref}", operation_id="getModel", dependencies=[OperatorOrAuditor])
def get_model(ref: str, services: ServicesDep) -> ModelView:
    """Show one model."""
    with services.reading() as session:
        return registry.show(registry.find(session, ref))


@router.get("/{ref}/versions", operation_id="listVersions", dependencies=[OperatorOrAuditor])
def list_versions(
    ref: str, services: ServicesDep, after: After = None, limit: Limit = 100
) -> Page[VersionView]:
    """List a model's versions, oldest first."""
    last = None if after is None else parse_number(after)
    with services.reading() as session:
        return registry.versions(session, ref, last, limit)


@router.get(
    "/{ref}/versions/{number}", operation_id="getVersion", dependencies=[OperatorOrAuditor]
)
def get_version(ref: str, number: Number, services: ServicesDep) -> VersionView:
    """Show one version."""
    with services.reading() as session:
        return registry.show_version(ref, registry.version(session, ref, number))


@router.get(
    "/{ref}/versions/{number}/artifact",
    operation_id="getArtifact",
    dependencies=[OperatorOrAuditor],
)
def get_artifact(ref: str, number: Number, request: Request, services: ServicesDep) -> Response:
    """Download a version's head as safetensors; 410 once it was withdrawn and shredded."""
    with services.reading() as session:
        row = registry.version(session, ref, number)
        head = services.artifacts.get(session, row.head_id)
    return revalidated(request, head, SAFETENSORS)


@router.post("/{ref}/contributions", status_code=202, operation_id="contribute")
def contribute(
    ref: str, signed: Signed, services: ServicesDep, response: Response
) -> ContributionView:
    """Add rows to a model: a signed .npz with features, labels, clients and records."""
    with services.reading() as session:
        model = registry.find(session, ref)
    upload = parse_upload(
        signed.body,
        dimension=model.config["dimension"],
        classes=len(model.classes),
        bits=model.config["bits"],
        max_bytes=services.settings.max_upload_bytes,
        records_required=True,
    )
    shown = registry.contribute(services, signed.by, ref, upload, signed.idempotency_key)
    response.headers["location"] = f"/v1/models/{ref}/contributions/{shown.id}"
    return shown


@router.get("/{ref}/contributions/{contribution_id}", operation_id="getContribution")
def get_contribution(ref: str, contribution_id: str, services: ServicesDep) -> ContributionView:
    """Show a contribution to whoever holds its id."""
    with services.reading() as session:
        return registry.contribution(session, ref, contribution_id)
