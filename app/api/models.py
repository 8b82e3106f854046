"""/v1/models: register, contribute, list versions, download artifacts."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool

from app.api.http.deps import (
    MAX_NUMBER,
    After,
    Limit,
    Operator,
    OperatorOrAuditor,
    ServicesDep,
    SignedByClient,
    UploadByClient,
)
from app.api.http.forms import describe_bytes, describe_form, read_rows
from app.api.http.immutable import revalidated, unkept
from app.api.http.parsing import ParsingDep
from app.problems import UploadError
from app.schemas.base import Page, refuse_duplicates
from app.schemas.families.manifests import MANIFESTS, Manifest
from app.schemas.models import (
    ContributionView,
    DeletionView,
    ManifestView,
    ModelView,
    NewModel,
    VersionView,
)
from app.service import registration
from app.service.context import Services
from app.service.models import contributions, deletion, mending, registry
from app.service.paging import parse_number
from app.service.queue import first_fit_stalls, training_progress
from app.settings import Settings
from app.uploads.checked import CheckedHeldOut, CheckedUpload
from app.uploads.spool import Spool
from lethe.catalogue import SKETCHED, data_of
from lethe.certificates.bundle import MEDIA_TYPE as BUNDLE
from models import Model

router = APIRouter(prefix="/v1/models", tags=["models"])
NPZ = "application/x-npz"
SAFETENSORS = "application/octet-stream"
Number = Annotated[
    Literal["current"] | Annotated[int, Path(ge=1, le=MAX_NUMBER)],
    Path(description="A version's number, or `current`."),
]


@dataclass(frozen=True, slots=True)
class Registration:
    """The two parts of a registration, unread."""

    manifest: bytes
    data: Spool | None


async def get_registration(
    request: Request, services: ServicesDep, _: Annotated[object, Operator]
) -> AsyncIterator[Registration]:
    """Read the form of an operator; for other callers it is not read at all."""
    settings = services.settings
    async with read_rows(request, settings.data_dir, settings.max_body_bytes) as parts:
        yield Registration(*parts)


@router.post(
    "",
    status_code=201,
    operation_id="registerModel",
    openapi_extra=describe_form(
        optional=("data",),
        json=tuple(one.__name__ for one in MANIFESTS.values()),
        manifest="JSON: NewModel, or the type that its family names",
        data=".npz with features (a network: inputs), labels, clients; where the rows stay "
        "with clients absent, or held-out rows alone",
    ),
)
async def register(
    services: ServicesDep,
    turns: ParsingDep,
    response: Response,
    sent: Annotated[Registration, Depends(get_registration)],
) -> ModelView:
    """Register a model of any family; a worker fits it and it becomes ready."""
    try:
        wanted = await turns.parse_body(sent.manifest, _read)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_input=False)) from None
    found = await turns.parse(lambda: _first_rows(services, wanted, sent.data))
    shown = await run_in_threadpool(registration.register, services, wanted, found)
    response.headers["location"] = f"/v1/models/{shown.ref}"
    return shown


class _Family(BaseModel):
    """The family of a manifest; ridge is the default."""

    family: Any = "ridge"


def _read(manifest: bytes) -> Manifest:
    """Return a manifest of any family. Raises ValidationError."""
    refuse_duplicates("manifest", manifest)
    family = _Family.model_validate_json(manifest).family
    wire = MANIFESTS.get(family, NewModel) if isinstance(family, str) else NewModel
    return wire.model_validate_json(manifest)


def _first_rows(
    services: Services, wanted: Manifest, data: Spool | None
) -> CheckedUpload | CheckedHeldOut | None:
    """Return a registration's rows; if clients keep theirs, its held-out rows or None.

    Only a ridge head can be registered without rows.
    """
    from app.uploads.rows import parse_held_out, parse_rows  # numpy: not at the start

    place = ("body", "data")
    pinned = wanted.pinned()
    max_bytes = services.settings.max_upload_bytes
    if not data_of(pinned["config"]).rows_here:
        if data is None:
            return None
        classes = wanted.classes
        return parse_held_out(data, pinned["config"], classes=classes, max_bytes=max_bytes)
    if data is None:
        raise RequestValidationError(
            [{"type": "missing", "loc": place, "msg": "Field required"}]
        )
    with services.artifacts.staged("upload") as file:
        return parse_rows(
            data, file, pinned["config"], classes=wanted.classes, max_bytes=max_bytes
        )


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
        model = registry.find(session, ref)
        shown = registry.show(model)
        figure = registry.current_figure(services, session, model)
        found = {
            "progress": training_progress(session, model),
            "held_out": figure,
            "failure": shown.failure or first_fit_stalls(session, model),
        }
        return shown.model_copy(update=found)


@router.delete("/{ref}", operation_id="deleteModel", dependencies=[Operator])
def delete_model(ref: str, services: ServicesDep) -> DeletionView:
    """Delete a model with rows, keys, files and identities; log and certificates remain."""
    return deletion.delete(services, ref)


@router.post("/{ref}/mend", status_code=202, operation_id="mendModel", dependencies=[Operator])
def mend_model(ref: str, services: ServicesDep) -> ModelView:
    """Rebuild a quarantined model from its rows; it becomes ready, or `failure` says why."""
    return mending.mend(services, ref)


@router.get("/{ref}/versions", operation_id="listVersions", dependencies=[OperatorOrAuditor])
def list_versions(
    ref: str, services: ServicesDep, after: After = None, limit: Limit = 100
) -> Page[VersionView]:
    """List a model's versions, oldest first."""
    last = None if after is None else parse_number(after)
    with services.reading() as session:
        return registry.versions(services, session, ref, last, limit)


@router.get(
    "/{ref}/versions/{number}", operation_id="getVersion", dependencies=[OperatorOrAuditor]
)
def get_version(ref: str, number: Number, services: ServicesDep) -> VersionView:
    """Show one version, and the certificates of the erasures that made it."""
    with services.reading() as session:
        row = registry.version(services, session, ref, number)
        certificates = registry.certificates_of(services, session, row)
        shown = registry.show_version(services, registry.find(session, ref), row)
        return shown.model_copy(update={"certificates": certificates})


@router.get(
    "/{ref}/versions/{number}/artifact",
    operation_id="getArtifact",
    dependencies=[OperatorOrAuditor],
)
def get_artifact(ref: str, number: Number, request: Request, services: ServicesDep) -> Response:
    """Download a version's head as safetensors; 410 once it was withdrawn and shredded."""
    head = registry.head(services, ref, number)
    return revalidated(request, head, SAFETENSORS)


@router.get(
    "/{ref}/versions/{number}/signature",
    operation_id="getSignature",
    dependencies=[OperatorOrAuditor],
)
def get_signature(ref: str, number: Number, services: ServicesDep) -> Response:
    """Sign a version's file for OpenSSF Model Signing; 410 once the version was withdrawn."""
    return unkept(registry.sign_version(services, ref, number), BUNDLE)


def parse_contribution(
    services: Services, model: Model, kind: str, body: Spool
) -> CheckedUpload:
    """Check a client's rows or statistics, as the model was registered.

    kind: of the artifact that stores them. Raises UploadError if they are invalid, too many for
    one contribution, or this model takes its statistics in masked rounds.
    """
    from app.uploads.rows import parse_rows
    from app.uploads.statistics import parse_message

    where = data_of(model.config)
    if where.in_rounds:
        raise UploadError("this model is masked: statistics reach it in rounds, see /v1/rounds")
    most = services.settings.max_upload_bytes
    with services.artifacts.staged(kind) as file:
        if where.messages_here:
            found = parse_message(
                body,
                file,
                dimension=model.config["dimension"],
                classes=len(model.classes),
                bits=model.config["bits"],
                max_bytes=most,
                sketches=model.method in SKETCHED,
            )
        else:
            found = parse_rows(
                body,
                file,
                model.config,
                classes=model.classes,
                max_bytes=most,
                records_required=True,
            )
        if kind == "upload":
            _check_size(found, services.settings)
    return found


def _check_size(upload: CheckedUpload, settings: Settings) -> None:
    """Check a contribution: with a larger one, a client keeps all others from writing.

    Held-out rows count, as their identities are stored with the others'. Raises UploadError: it
    has too many rows, or names too many clients and subjects.
    """
    most = settings.max_contribution_rows
    if upload.rows + upload.held_out > most:
        raise UploadError(
            f"a contribution has at most {most} rows, with held-out ones: send several"
        )
    owners = len(set(zip(upload.clients, upload.subjects, strict=True)))
    if owners > (most := settings.max_contribution_owners):
        raise UploadError(
            f"a contribution names at most {most} clients and subjects: send several"
        )


@router.get("/{ref}/manifest", operation_id="getManifest")
def get_manifest(ref: str, signed: SignedByClient, services: ServicesDep) -> ManifestView:
    """Show a client what it needs to compute statistics; signed with a client's key."""
    return registry.manifest(services, signed.by, ref)


@router.post(
    "/{ref}/contributions",
    status_code=202,
    operation_id="contribute",
    openapi_extra=describe_bytes(NPZ),
)
async def contribute(
    ref: str,
    signed: UploadByClient,
    services: ServicesDep,
    turns: ParsingDep,
    response: Response,
    add_back: bool = False,
) -> ContributionView:
    """Add to a model: a signed .npz with rows (features, labels, clients and records).

    A record that was erased comes back only with `add_back`, which the signature covers.
    Where the rows stay with the clients, it holds their statistics: see `parse_message`.
    """

    def find() -> Model:
        with services.reading() as session:
            return registry.find(session, ref)

    model = await run_in_threadpool(find)
    upload = await turns.parse(
        lambda: parse_contribution(services, model, "upload", signed.body)
    )
    shown = await run_in_threadpool(
        contributions.contribute,
        services,
        signed.by,
        ref,
        upload,
        signed.idempotency_key,
        add_back=add_back,
    )
    response.headers["location"] = f"/v1/models/{ref}/contributions/{shown.id}"
    return shown


@router.get("/{ref}/contributions/{contribution_id}", operation_id="getContribution")
def get_contribution(ref: str, contribution_id: str, services: ServicesDep) -> ContributionView:
    """Show a contribution to whoever holds its id."""
    with services.reading() as session:
        return contributions.contribution(session, ref, contribution_id)
