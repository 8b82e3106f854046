"""/v1/holds: legal holds, for operators and officers."""

from typing import Annotated

from fastapi import APIRouter

from app.api.http.deps import After, Deciding, Limit, ServicesDep
from app.api.http.strict import StrictRoute
from app.schemas.base import Page
from app.schemas.people import HoldView, NewHold
from app.service import holds
from models import BearerToken

router = APIRouter(
    prefix="/v1/holds", tags=["holds"], dependencies=[Deciding], route_class=StrictRoute
)
Token = Annotated[BearerToken, Deciding]


@router.post("", status_code=201, operation_id="placeHold")
def place(wanted: NewHold, services: ServicesDep, token: Token) -> HoldView:
    """Keep a case, request or model beyond its retention; the log names the token."""
    return holds.place(services, wanted, token.name)


@router.get("", operation_id="listHolds")
def list_holds(
    services: ServicesDep, released: bool = False, after: After = None, limit: Limit = 100
) -> Page[HoldView]:
    """List the unreleased holds, or all with `released`."""
    with services.reading() as session:
        return holds.page(session, after, limit, released=released)


@router.post("/{hold}/release", operation_id="releaseHold")
def release(hold: str, services: ServicesDep, token: Token) -> HoldView:
    """Release a hold that somebody else placed."""
    return holds.release(services, hold, token.name)
