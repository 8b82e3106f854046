"""/v1/releases: the open releases of clients, their answers, and an operator's decision."""

from typing import Annotated

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool

from app.api.http.deps import (
    After,
    Limit,
    Operator,
    ServicesDep,
    SignedByClient,
    UploadByClient,
)
from app.api.http.forms import describe_bytes
from app.api.http.parsing import ParsingDep
from app.api.models import NPZ, parse_contribution
from app.schemas.base import Page
from app.schemas.requests import ReleaseSummary, ReleaseView
from app.service import releases
from models import BearerToken

router = APIRouter(prefix="/v1/releases", tags=["releases"])


@router.get("/asked", operation_id="listAsked")
def list_asked(signed: SignedByClient, services: ServicesDep) -> Page[ReleaseView]:
    """List the open releases of the signing client, at most 100, oldest first."""
    return Page(items=releases.open_releases(services, signed.by), next=None)


@router.post(
    "/{release_id}/answer", operation_id="answerRelease", openapi_extra=describe_bytes(NPZ)
)
async def answer(
    release_id: str, signed: UploadByClient, services: ServicesDep, turns: ParsingDep
) -> ReleaseView:
    """Send the statistics of the requested records, as an .npz like a contribution's."""
    model = await run_in_threadpool(releases.model_of, services, signed.by, release_id)
    upload = await turns.parse(
        lambda: parse_contribution(services, model, "release", signed.body)
    )
    return await run_in_threadpool(releases.answer, services, signed.by, release_id, upload)


@router.get("", operation_id="listReleases", dependencies=[Operator])
def list_releases(
    services: ServicesDep, after: After = None, limit: Limit = 100
) -> Page[ReleaseSummary]:
    """List the releases that are not done: which clients have not answered, and since when."""
    with services.reading() as session:
        return releases.page(session, after, limit)


@router.post("/{release_id}/drop", operation_id="dropRelease")
def drop(
    release_id: str, services: ServicesDep, token: Annotated[BearerToken, Operator]
) -> ReleaseSummary:
    """Decide to erase the whole block of this subject, without the client's answer."""
    return releases.drop(services, release_id, token.name)
