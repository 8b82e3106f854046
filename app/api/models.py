"""/v1/models: register, contribute, list versions, download artifacts."""

from typing import Annotated

from fastapi import APIRouter, File, Form, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from app.api.deps import (
    After,
    Limit,
    Operator,
    OperatorOrAuditor,
    ServicesDep,
    SessionDep,
    Signed,
)
from app.api.immutable import immutable
from app.api.uploads import parse_upload
from app.schemas.base import Page
from app.schemas.models import ContributionView, ModelView, NewModel, VersionView
from app.service import registry
from app.service.problems import BadCursorError

router = APIRouter(prefix="/v1/models", tags=["models"])
SAFETENSORS = "application/octet-stream"


@router.post("", status_code=201, operation_id="registerModel", dependencies=[Operator])
def register(
    services: ServicesDep,
    response: Response,
    manifest: Annotated[str, Form(description="JSON: see NewModel")],
    data: Annotated[UploadFile, File(description=".npz with features, labels, clients")],
) -> ModelView:
    """Register a ridge head over frozen features; a worker fits it and it becomes ready."""
    try:
        wanted = NewModel.model_validate_json(manifest)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_input=False)) from None
    upload = parse_upload(
        data.file.read(),
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
    session: SessionDep, after: After = None, limit: Limit = 100
) -> Page[ModelView]:
    """List models by reference."""
    return registry.page(session, after, limit)


@router.get("/{ref}", operation_id="getModel", dependencies=[OperatorOrAuditor])
def get_model(ref: str, session: SessionDep) -> ModelView:
    """Show one model."""
    return registry.show(registry.find(session, ref))


@router.get("/{ref}/versions", operation_id="listVersions", dependencies=[OperatorOrAuditor])
def list_versions(
    ref: str, session: SessionDep, after: After = None, limit: Limit = 100
) -> Page[VersionView]:
    """List a model's versions, oldest first."""
    if after is not None and not after.isdecimal():
        raise BadCursorError("`after` is not a cursor of this list: start without it")
    return registry.versions(session, ref, int(after) if after else None, limit)


@router.get(
    "/{ref}/versions/{number}", operation_id="getVersion", dependencies=[OperatorOrAuditor]
)
def get_version(ref: str, number: int, session: SessionDep) -> VersionView:
    """Show one version."""
    return registry.show_version(ref, registry.version(session, ref, number))


@router.get(
    "/{ref}/versions/{number}/artifact",
    operation_id="getArtifact",
    dependencies=[OperatorOrAuditor],
)
def get_artifact(
    ref: str, number: int, request: Request, services: ServicesDep, session: SessionDep
) -> Response:
    """Download a version's head as safetensors; 410 once it was withdrawn and shredded."""
    row = registry.version(session, ref, number)
    return immutable(request, services.artifacts.get(session, row.head_id), SAFETENSORS)


@router.post("/{ref}/contributions", status_code=202, operation_id="contribute")
def contribute(
    ref: str, signed: Signed, services: ServicesDep, session: SessionDep, response: Response
) -> ContributionView:
    """Add rows to a model: a signed .npz with features, labels, clients and records."""
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
def get_contribution(ref: str, contribution_id: str, session: SessionDep) -> ContributionView:
    """Show a contribution to whoever holds its id."""
    return registry.contribution(session, ref, contribution_id)
